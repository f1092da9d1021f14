// Rollouts: prompts with their groups of responses, as token ids, from a file of JSON lines.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/deck/deck.hpp"

#include <cstdint>
#include <map>
#include <optional>
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
  std::vector<int32_t> prompt;
  std::vector<Response> responses;
  int64_t line = 0;  // in the file, from 1
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

/// Reads and checks the file on rank 0 and gives the groups to all ranks. Errors name file, line,
/// group, response, field and position. `on_bad_sample = drop` leaves out a response with a fault
/// of its own (its reward, ids, log-probabilities, mask), counts it and warns; faults of a line, of
/// a prompt, or between lines (duplicate ids) always stop. Two groups with the same prompt are
/// allowed and reported. Collective over `grid`.
Rollouts load_rollouts(const std::string& path, OnBadSample on_bad_sample, const Grid& grid);

/// `FILE line N: group G: response R`, for messages.
std::string place_of(const std::string& file, const Group& group,
                     const Response* response = nullptr);

/// Refuses token ids outside [0, vocab): `vocab` is the number of embedding rows (config.json's
/// vocab_size), so ids of rows that only pad the table are accepted: they have weights.
void check_token_ids(const Rollouts& rollouts, int64_t vocab);

/// Log-probabilities of a response's tokens, by response id.
using Scores = std::map<std::string, std::vector<double>, std::less<>>;

/// Writes the lines of `from` to `to` with `key` (logprobs or ref_logprobs) of every response that
/// has scores set to them, in full precision; everything else is carried through. Written as to.tmp
/// and renamed. For one rank.
void write_scored(const std::string& from, const std::string& to, const std::string& key,
                  const Scores& scores);

}  // namespace longstraw
