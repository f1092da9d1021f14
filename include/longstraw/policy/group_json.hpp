// A group as JSON: what the files of either kind are read to and written from, and the one place
// where its members are checked. Files are the business of readers and writers, duties between
// groups that of rollouts.hpp.
#pragma once

#include "longstraw/policy/rollouts.hpp"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace longstraw {

/// Where a group stands: the line of a file of JSON lines, from 1. In an HDF5 file the group's
/// number takes the place of the line, so that both files of a conversion name the same one.
struct LinePlace {
  std::string file;
  int64_t line = 0;
};

/// A group as its file has it, members that the program does not know included.
struct RawGroup {
  LinePlace place;
  nlohmann::ordered_json object;  // `prompt` is there as null
  Prompt prompt;
  bool marked = false;  // non-numbers are texts with a mark, see non_numbers.hpp
};

/// Groups of a file in their order. For one rank.
class GroupReader {
 public:
  explicit GroupReader(std::string file) : file_(std::move(file)) {}
  GroupReader(const GroupReader&) = delete;
  GroupReader& operator=(const GroupReader&) = delete;
  virtual ~GroupReader() = default;

  const std::string& file() const { return file_; }
  /// Nothing at the end.
  virtual std::optional<RawGroup> next() = 0;
  /// Reads the prompts' tokens where these stay in the file; on every rank, and when the reader is
  /// gone.
  virtual ReadTokens tokens() const { return {}; }

 private:
  std::string file_;
};

/// Writes a file group by group, under another name until it is finished. For one rank.
class GroupWriter {
 public:
  GroupWriter() = default;
  GroupWriter(const GroupWriter&) = delete;
  GroupWriter& operator=(const GroupWriter&) = delete;
  virtual ~GroupWriter() = default;

  virtual void put(const RawGroup& group) = 0;
  virtual void finish() = 0;
};

/// Takes the prompt out of a group in JSON. Errors name file, line, group and position.
RawGroup raw_group(nlohmann::ordered_json object, const LinePlace& place);

/// The group. A response with a fault of its own is left out and its fault added to `faults`; any
/// other fault throws. Both name file, line, group, response, field and position. The tokens of a
/// prompt in a file are not looked at.
Group parse_group(const RawGroup& raw, std::vector<std::string>& faults);

/// Member `id` of a group or response: text, or a whole number as text, both being in use.
std::string identity(const nlohmann::ordered_json& object, const std::string& where);

/// Refuses what is below 0 among tokens that begin at `begin` of what `where` names.
void check_tokens(std::span<const int32_t> ids, int64_t begin, const std::string& where);

/// Sets `key` (logprobs or ref_logprobs) of every response of a group that has scores.
void add_scores(nlohmann::ordered_json& object, const std::string& key, const Scores& scores);

}  // namespace longstraw
