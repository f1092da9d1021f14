#include "longstraw/policy/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace longstraw {
namespace {

// Places in the sums over tokens.
enum Sum { pg_loss, kl_loss, entropy_sum, ratio_sum, low, high, dual, capped, count };

}  // namespace

void StepMetrics::add_group(const Group& group) {
  const auto advantages = group_advantages(group, settings_);
  groups_.prompt_tokens += group.prompt.size();
  groups_.zero_std_groups += zero_signal(group);
  for (size_t i = 0; i < group.responses.size(); ++i) {
    const Response& response = group.responses[i];
    const int64_t counted = counted_tokens(response, settings_);
    rewards_.push_back(response.reward);
    groups_.response_tokens += std::ssize(response.ids);
    groups_.counted_tokens += counted;
    groups_.masked_responses += counted == 0;
    advantage_sum_ += advantages[i] * static_cast<double>(counted);
  }
}

void StepMetrics::add_token(const TokenLoss& token, double weight, double entropy,
                            bool importance_capped) {
  sums_[pg_loss] += weight * token.pg;
  sums_[kl_loss] += weight * token.kl;
  sums_[entropy_sum] += entropy;
  sums_[ratio_sum] += token.ratio;
  sums_[low] += token.clipped_low;
  sums_[high] += token.clipped_high;
  sums_[dual] += token.clipped_dual;
  sums_[capped] += importance_capped;
  sums_[count] += 1;
  ratio_max_ = std::max(ratio_max_, token.ratio);
}

void StepMetrics::fields(DumpFields& fields, const Grid& grid) {
  const auto count = static_cast<int64_t>(sums_.size());
  fields.contributed(
      {.path = "step/sums",
       .type = DType::float64,
       .extents = {count},
       .meaning = "sums over the step's counted tokens so far, by contributing rank: weighted "
                  "policy loss, weighted KL, entropy, ratio, clipped low, clipped high, dual "
                  "clipped, importance capped, tokens"},
      std::vector<DumpPiece>{{.first = 0,
                              .values = {sums_.data(), DType::float64, {count}},
                              .own = grid.rank() == 0}});
  std::vector<double> ratio_max{grid.max(ratio_max_)};
  fields.numbers("step/ratio_max", ratio_max, "largest ratio of the step's counted tokens so far");
  if (ratio_max.size() != 1) throw Error("step/ratio_max is not one number", 1, true);
  ratio_max_ = ratio_max[0];
}

StepSummary StepMetrics::summary(const Grid& grid) const {
  auto sums = sums_;
  grid.sum(sums);
  StepSummary s = groups_;
  s.ratio_max = grid.max(ratio_max_);
  const double tokens = std::max(sums[count], 1.0);
  s.pg_loss = sums[pg_loss];
  s.kl_loss = sums[kl_loss];
  s.loss = s.pg_loss + settings_.kl_loss_coef * s.kl_loss;
  s.entropy = sums[entropy_sum] / tokens;
  s.ratio_mean = sums[ratio_sum] / tokens;
  s.clip_fraction_low = sums[low] / tokens;
  s.clip_fraction_high = sums[high] / tokens;
  s.dual_clip_fraction = sums[dual] / tokens;
  s.tis_capped_fraction = sums[capped] / tokens;
  s.advantage_mean =
      advantage_sum_ / static_cast<double>(std::max<int64_t>(groups_.counted_tokens, 1));
  if (rewards_.empty()) return s;
  const auto responses = static_cast<double>(rewards_.size());
  s.reward_mean = std::accumulate(rewards_.begin(), rewards_.end(), 0.0) / responses;
  double squares = 0;
  for (double reward : rewards_) squares += (reward - s.reward_mean) * (reward - s.reward_mean);
  if (rewards_.size() > 1) s.reward_std = std::sqrt(squares / (responses - 1));
  return s;
}

}  // namespace longstraw
