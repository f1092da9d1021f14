// The history of a run: one JSON object a line.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/io/file.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>

namespace longstraw {

class History {
 public:
  /// The file `path` will hold the `lines` of rank 0 and those that are appended, there too.
  /// Collective over `grid`.
  History(const std::string& path, std::string& lines, const Grid& grid);

  /// Appends `line` of rank 0, keys in their order, and returns when it is on the disk. Numbers
  /// that are not finite become null, as JSON has no word for them. Collective over the grid.
  void append(const nlohmann::ordered_json& line);

 private:
  Grid grid_;
  std::optional<DiskFile> file_;  // on rank 0
  std::string& lines_;
};

}  // namespace longstraw
