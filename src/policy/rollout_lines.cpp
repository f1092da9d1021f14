#include "longstraw/policy/rollout_lines.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/policy/non_numbers.hpp"

#include <algorithm>

namespace longstraw {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* cure = " - one group a line is expected";

}  // namespace

RawGroup parse_line(const std::string& text, const LinePlace& place) {
  MarkedJson read = parse_marked_json(text, str("{} line {}", place.file, place.line), cure);
  RawGroup group = raw_group(std::move(read.value), place);
  group.marked = read.marked;
  return group;
}

std::optional<RawGroup> LineReader::next() {
  if (!stream_.is_open()) stream_.open(file(), std::ios::binary);
  require(stream_.good() || stream_.eof(), "cannot read rollouts {} - check [rollouts] file",
          file());
  std::string text;
  while (std::getline(stream_, text)) {
    ++line_;
    if (text.find_first_not_of(" \t\r") != std::string::npos)
      return parse_line(text, {file(), line_});
  }
  require(!stream_.bad(), "cannot read rollouts {} to the end", file());
  return std::nullopt;
}

LineWriter::LineWriter(const std::string& path) : path_(path), stream_(path, std::ios::binary) {
  require(stream_.good(), "cannot write {} - check the output path", path);
}

void LineWriter::put(const RawGroup& group) {
  const char* before = "{";
  for (const auto& [key, value] : group.object.items()) {
    stream_ << before << json_text(json(key)) << ':';
    if (key == "prompt")
      put_prompt(group.prompt);
    else
      stream_ << (group.marked ? with_bare_non_numbers(json_text(value)) : json_text(value));
    before = ",";
  }
  stream_ << "}\n";
}

void LineWriter::put_prompt(const Prompt& prompt) {
  for (int64_t begin = 0; begin < prompt.size(); begin += prompt_piece) {
    const Range piece{begin, std::min(begin + prompt_piece, prompt.size())};
    std::string text;
    for (const int32_t id : prompt.ids(piece)) text += str("{}{}", text.empty() ? "" : ",", id);
    stream_ << (begin == 0 ? '[' : ',') << text;
  }
  stream_ << ']';
}

void LineWriter::finish() {
  stream_.close();
  require(stream_.good(), "cannot write {} (disk full?)", path_);
}

}  // namespace longstraw
