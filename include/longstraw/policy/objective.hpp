// The GRPO objective: advantages, the loss of one token and its derivative, and the denominators of
// a step. What a step reports about itself is in metrics.hpp.
//
// One token with log-probability l, old one o, reference r, advantage A, importance factor w:
//   ratio = exp(l - o)
//   pg    = w max(-A ratio, -A clip(ratio, 1 - clip_ratio_low, 1 + clip_ratio_high)),
//           for A < 0 no more than w (-A clip_ratio_c)
//   kl    = k1: l - r     k2: (l - r)^2 / 2     k3: exp(r - l) - (r - l) - 1
//   loss of the step = sum over counted tokens of weight (pg + kl_loss_coef kl)
// Exponents (l - o in the ratio, r - l in k3) are limited to [-20, 20], as verl does; the
// derivative is zero beyond. The KL derivative is that of the estimator's value with respect to l.
//
// weight by loss_agg_mode, for a token of a response with n counted tokens, in a step with T
// counted tokens and R counted responses (those with n > 0), over all groups and ranks:
//   token-mean                 1 / T
//   seq-mean-token-sum         1 / R
//   seq-mean-token-mean        1 / (R n)
//   seq-mean-token-sum-norm    1 / (R loss_scale_factor)
// A token counts when its loss_mask is 1 and, with mask_truncated, its response was not cut off
// (finish_reason "length"). What does not count is in no sum and no denominator; the reward of a
// response that does not count still is in its group's mean and standard deviation.
#pragma once

#include "longstraw/policy/rollouts.hpp"

#include <span>

namespace longstraw {

enum class OldLogprobs { computed, given };
enum class Advantages { group, given };
enum class Aggregation {
  token_mean,
  seq_mean_token_sum,
  seq_mean_token_mean,
  seq_mean_token_sum_norm
};
enum class KlType { k1, k2, k3 };

struct ObjectiveSettings {
  double temperature = 1.0;
  OldLogprobs old_logprobs = OldLogprobs::computed;
  double clip_ratio_low = 0.2;
  double clip_ratio_high = 0.2;
  double clip_ratio_c = 3.0;
  Aggregation loss_agg_mode = Aggregation::token_mean;
  double loss_scale_factor = 0;  // only for seq-mean-token-sum-norm
  bool norm_adv_by_std = true;
  Advantages advantages = Advantages::group;
  double kl_loss_coef = 0;
  KlType kl_loss_type = KlType::k3;
  bool mask_truncated = false;
  double tis_imp_ratio_cap = 0;  // 0: off
};

/// Reads section [objective].
ObjectiveSettings read_objective(Deck& deck);

/// Refuses rollouts that this objective or a vocabulary of `vocab` ids cannot work with: token ids
/// outside it, log-probabilities, reference ones or advantages that are needed and missing,
/// advantages that are not finite. Names file, line, group and response. For all ranks of `grid` at
/// once, inside `agree`: see `check_token_ids`.
void check_rollouts(const Rollouts& rollouts, const ObjectiveSettings& settings, int64_t vocab,
                    const Grid& grid);

/// Advantages of a group's responses: given ones, or r - mean(r), with norm_adv_by_std divided by
/// (sample standard deviation + 1e-6). Exactly zero when all rewards are equal and for a group of
/// one.
std::vector<double> group_advantages(const Group& group, const ObjectiveSettings& settings);
/// Whether the group teaches nothing: all rewards equal.
bool zero_signal(const Group& group);

/// Whether token `index` of the response counts, and how many of its tokens do.
bool counts(const Response& response, int64_t index, const ObjectiveSettings& settings);
int64_t counted_tokens(const Response& response, const ObjectiveSettings& settings);

/// Over the whole step: all groups, all ranks.
struct StepDenominators {
  int64_t tokens = 0;     // that count
  int64_t responses = 0;  // with at least one of them
};
StepDenominators step_denominators(std::span<const Group* const> groups,
                                   const ObjectiveSettings& settings);

/// Weight of one counted token of a response with `counted` of them; see above.
double token_weight(int64_t counted, const StepDenominators& step,
                    const ObjectiveSettings& settings);

struct TokenValues {
  double logprob = 0;      // of the policy, at the objective's temperature
  double old_logprob = 0;  // `logprob` itself where it is computed and serves one update
  double ref_logprob = 0;  // read only with kl_loss_coef > 0
  double advantage = 0;
  double importance = 1.0;  // constant factor of pg; see `truncated_importance`
};

struct TokenLoss {
  double pg = 0;
  double kl = 0;
  double derivative =
      0;  // of pg + kl_loss_coef kl with respect to logprob; the old one is a constant
  double ratio = 1.0;
  bool clipped_low = false;   // ratio < 1 - clip_ratio_low with A < 0
  bool clipped_high = false;  // ratio > 1 + clip_ratio_high with A > 0
  bool clipped_dual = false;  // ratio > clip_ratio_c with A < 0
};

TokenLoss token_loss(const TokenValues& token, const ObjectiveSettings& settings);

struct Importance {
  double factor = 1.0;
  bool capped = false;
};
/// min(exp(computed - given), tis_imp_ratio_cap): corrects for rollouts drawn by an engine whose
/// log-probabilities differ from ours. 1 when the cap is 0.
Importance truncated_importance(double computed_logprob, double given_logprob,
                                const ObjectiveSettings& settings);

}  // namespace longstraw
