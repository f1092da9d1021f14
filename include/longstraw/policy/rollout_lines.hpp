// Rollouts as JSON lines: a group a line.
#pragma once

#include "longstraw/policy/group_json.hpp"

#include <fstream>
#include <optional>
#include <string>

namespace longstraw {

/// Opens the file when the first group is asked for.
class LineReader : public GroupReader {
 public:
  using GroupReader::GroupReader;
  std::optional<RawGroup> next() override;

 private:
  std::ifstream stream_;
  int64_t line_ = 0;
};

/// Numbers have full precision.
class LineWriter : public GroupWriter {
 public:
  explicit LineWriter(const std::string& path);
  void put(const RawGroup& group) override;
  void finish() override;

 private:
  void put_prompt(const Prompt& prompt);
  std::string path_;
  std::ofstream stream_;
};

/// The group in the line `text`; errors name `place`.
RawGroup parse_line(const std::string& text, const LinePlace& place);

}  // namespace longstraw
