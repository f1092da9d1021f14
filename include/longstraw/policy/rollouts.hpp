// Rollouts: prompts with their groups of responses, as token ids, from a file of either kind (JSON
// lines, HDF5) by way of a reader of group_json.hpp.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/deck/deck.hpp"
#include "longstraw/policy/prompt.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace longstraw {

struct Response {
  std::string id;
  std::vector<int32_t> ids;
  double reward = 0;
  std::vector<double> logprobs;      // one a token of `ids`; empty when not given
  std::vector<double> ref_logprobs;  // likewise
  std::vector<uint8_t> loss_mask;    // 0 or 1 a token; empty: all 1
  std::optional<double> advantage;
  std::string finish_reason;  // empty when not given
};

struct Group {
  std::string id;
  Prompt prompt;
  std::vector<Response> responses;
  int64_t line = 0;  // in the file, from 1; in HDF5 the number of the group
};

/// What to do with a response that cannot be used.
enum class OnBadSample { stop, drop };

struct RolloutSettings {
  std::string file;
  int64_t groups_per_step = 1;
  int64_t epochs = 1;
  bool shuffle = false;
  OnBadSample on_bad_sample = OnBadSample::stop;
};

/// Reads section [rollouts].
RolloutSettings read_rollout_settings(Deck& deck);

struct Rollouts {
  std::string file;
  std::vector<Group> groups;
  int64_t dropped_responses = 0;
  int64_t dropped_groups = 0;  // those that lost their last response
};

class GroupReader;

/// Reads and checks the groups on rank 0 and gives them to all ranks; prompts whose tokens stay in
/// the file are looked at by all ranks, each at its part. Errors name file, line, group, response,
/// field and position. `on_bad_sample = drop` leaves out a response with a fault
/// of its own (its reward, ids, log-probabilities, mask), counts it and warns; faults of a line, of
/// a prompt, or between lines (duplicate ids) always stop. Two groups with the same prompt are
/// allowed and reported. Collective over `grid`.
Rollouts load_rollouts(GroupReader& reader, OnBadSample on_bad_sample, const Grid& grid);

/// `FILE line N: group G: response R`, for messages.
std::string place_of(const std::string& file, const Group& group,
                     const Response* response = nullptr);

/// Looks at tokens from `begin` on of the prompt of group `index`.
using LookAtTokens =
    std::function<void(int64_t index, int64_t begin, std::span<const int32_t> ids)>;

/// Shows this rank's part of all prompts' tokens to `look` in pieces of bounded size, ascending;
/// together the ranks see every token once, lower ranks those of earlier groups.
void for_each_prompt_piece(const Rollouts& rollouts, const Grid& grid, const LookAtTokens& look);

/// A number for each prompt that depends on its tokens only, not on the kind of file or the ranks:
/// the sum of a hash of each token at its position. Collective over `grid`.
std::vector<uint64_t> prompt_hashes(const Rollouts& rollouts, const Grid& grid);

/// Refuses token ids outside [0, vocab): `vocab` is the number of embedding rows (config.json's
/// vocab_size), so ids of rows that only pad the table are accepted: they have weights. Of prompts
/// looks at this rank's part: for all ranks of `grid` at once, inside `agree`.
void check_token_ids(const Rollouts& rollouts, int64_t vocab, const Grid& grid);

/// Log-probabilities of a response's tokens, by response id.
using Scores = std::map<std::string, std::vector<double>, std::less<>>;

}  // namespace longstraw
