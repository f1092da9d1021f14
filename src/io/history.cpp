#include "longstraw/io/history.hpp"

#include "longstraw/core/json_check.hpp"

#include <nlohmann/json.hpp>

namespace longstraw {

History::History(const std::string& path, std::string& lines, const Grid& grid)
    : grid_(grid), lines_(lines) {
  agree(grid_, [&] {
    if (grid_.rank() != 0) return;
    write_text(path, lines);
    file_ = DiskFile::append(path);
  });
}

void History::append(const nlohmann::ordered_json& line) {
  agree(grid_, [&] {
    if (!file_) return;
    // One write a line: what reads along never sees half of one.
    const auto text = json_text(line) + "\n";
    file_->write(text);
    file_->sync();
    lines_ += text;
  });
}

}  // namespace longstraw
