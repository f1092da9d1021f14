// What a user's files hold, for people.
#pragma once

#include "longstraw/comm/grid.hpp"

#include <string>

namespace longstraw {

/// Describes a checkpoint folder or a rollouts file in the log. Collective over `grid`.
void inspect(const std::string& path, const Grid& grid);

}  // namespace longstraw
