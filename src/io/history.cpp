#include "longstraw/io/history.hpp"

#include <nlohmann/json.hpp>

namespace longstraw {

History::History(const std::string& path, const Grid& grid) : grid_(grid) {
  agree(grid_, [&] {
    if (grid_.rank() == 0) file_ = DiskFile::append(path);
  });
}

void History::append(const nlohmann::ordered_json& line) {
  agree(grid_, [&] {
    if (!file_) return;
    // One write a line: what reads along never sees half of one.
    file_->write(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    file_->sync();
  });
}

}  // namespace longstraw
