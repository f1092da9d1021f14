// What a step tells about itself: the columns of the history that the objective knows.
#pragma once

#include "longstraw/core/dump_fields.hpp"
#include "longstraw/policy/objective.hpp"

#include <array>

namespace longstraw {

/// Names are those of the history's columns. Means without a word are over counted tokens.
struct StepSummary {
  double loss = 0, pg_loss = 0, kl_loss = 0;  // kl_loss without its coefficient
  double entropy = 0;
  double reward_mean = 0;  // over all responses of the step
  double reward_std = 0;   // sample standard deviation over all responses of the step
  double advantage_mean = 0;
  double ratio_mean = 0, ratio_max = 0;
  double clip_fraction_low = 0, clip_fraction_high = 0, dual_clip_fraction = 0;
  double tis_capped_fraction = 0;
  int64_t zero_std_groups = 0;
  int64_t masked_responses = 0;  // without a counted token
  int64_t prompt_tokens = 0, response_tokens = 0;
  int64_t counted_tokens = 0;
};

/// Gathers a step's figures. Groups are added alike on every rank; a token is added on the rank
/// that owns it. Sums are made in double in the order of calls, then over ranks in the order of
/// ranks.
class StepMetrics {
 public:
  explicit StepMetrics(const ObjectiveSettings& settings) : settings_(settings) {}

  void add_group(const Group& group);
  /// A counted token with its weight in the loss.
  void add_token(const TokenLoss& token, double weight, double entropy, bool importance_capped);

  /// Collective over `grid`; leaves the metrics as they were.
  StepSummary summary(const Grid& grid) const;

  /// Lists the sums over tokens so far; the groups are to be added again after a restart.
  /// Collective over `grid`.
  void fields(DumpFields& fields, const Grid& grid);

 private:
  ObjectiveSettings settings_;
  std::vector<double> rewards_;
  StepSummary groups_;        // what add_group knows
  double advantage_sum_ = 0;  // over counted tokens
  std::array<double, 9> sums_{};
  double ratio_max_ = 0;
};

}  // namespace longstraw
