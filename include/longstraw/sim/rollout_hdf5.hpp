// Rollouts as HDF5, for prompts that no rank should hold whole. Format 1, a file of
//   groups/response_offsets     int64    the responses of a group, among all
//   groups/id, other            text     of a group
//   groups/prompt               int32    tokens of a group's prompt
//   responses/id, other, finish_reason   text     of a response
//   responses/ids               int32    its tokens
//   responses/reward            float64  one a response
//   responses/logprobs, ref_logprobs     float64  one a token, or none where they are not given
//   responses/loss_mask         uint8    likewise, 0 or 1
//   responses/advantage         float64  one a response, or none
// where all but reward are lists (lists.hpp), each with its offsets; text is UTF-8. `other` is a
// JSON object of the members that have no dataset, or nothing. What may be missing of a response,
// and `other`, may be missing as a dataset. Attribute `format` of the file is the format's number.
#pragma once

#include "longstraw/policy/group_json.hpp"

#include <memory>
#include <optional>
#include <string>

namespace longstraw {

/// Whether to read members that the program does not know, as files made from this one need them.
enum class OtherMembers { left, read };

/// Opens the prompts at once, on every rank, and the rest when the first group is asked for.
class RolloutHdf5Reader : public GroupReader {
 public:
  RolloutHdf5Reader(const std::string& file, OtherMembers other);
  ~RolloutHdf5Reader() override;
  std::optional<RawGroup> next() override;
  ReadTokens tokens() const override;

 private:
  struct Tokens;
  struct Columns;
  void read_responses(RawGroup& group, Range which) const;

  OtherMembers other_;
  std::shared_ptr<const Tokens> tokens_;
  std::unique_ptr<const Columns> columns_;
  int64_t next_ = 0;
};

/// Takes groups that `parse_group` finds no fault with.
class RolloutHdf5Writer : public GroupWriter {
 public:
  explicit RolloutHdf5Writer(const std::string& path);
  ~RolloutHdf5Writer() override;
  void put(const RawGroup& group) override;
  void finish() override;

 private:
  struct Columns;
  std::string path_;
  std::unique_ptr<Columns> columns_;
};

}  // namespace longstraw
