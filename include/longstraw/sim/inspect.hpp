// What a user's files hold, for people.
#pragma once

#include "longstraw/comm/grid.hpp"

#include <string>

namespace longstraw {

/// Describes a checkpoint folder, a rollouts file or a dump in the log; `check_content` is for
/// dumps. Collective over `grid`.
void inspect(const std::string& path, bool check_content, const Grid& grid);

}  // namespace longstraw
