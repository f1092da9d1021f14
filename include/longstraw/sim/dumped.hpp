// What users do with dumps besides going on from them: look, and take the weights out.
#pragma once

#include "longstraw/comm/grid.hpp"

#include <string>

namespace longstraw {

/// Whether the file says that it is a dump, whole or not. For one rank.
bool is_dump(const std::string& path);

/// Describes a dump in the log: the run, where in it, bytes by label. With `check_content` the
/// checksums of all content are computed too. Refuses what is damaged. Collective over `grid`.
void inspect_dump(const std::string& path, bool check_content, const Grid& grid);

struct ExportOptions {
  std::string dump;
  std::string output;      ///< folder to make
  std::string checkpoint;  ///< where the dump's model lies now; empty: where the dump says
  bool masters = false;    ///< trained tensors in the precision of the run, not in stored types
};

/// Writes the dump's weights as a Hugging Face folder like the checkpoint that the run started
/// from. Refuses another checkpoint. Collective over `grid`.
void export_weights(const ExportOptions& options, const Grid& grid);

}  // namespace longstraw
