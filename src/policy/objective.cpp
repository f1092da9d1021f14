#include "longstraw/policy/objective.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace longstraw {
namespace {

constexpr double std_epsilon = 1e-6;
constexpr double largest_exponent = 20.0;

// exp(x) with the exponent limited, and its derivative, which is zero beyond the limit.
struct LimitedExp {
  explicit LimitedExp(double x)
      : exponent(std::clamp(x, -largest_exponent, largest_exponent)),
        value(std::exp(exponent)),
        derivative(std::abs(x) <= largest_exponent ? value : 0.0) {}
  double exponent, value, derivative;
};

struct Term {
  double value = 0, derivative = 0;
};

// Given: d = reference - policy; the derivative is with respect to the policy's log-probability.
Term kl_term(double d, KlType type) {
  switch (type) {
    case KlType::k1: return {-d, 1.0};
    case KlType::k2: return {0.5 * d * d, -d};
    case KlType::k3: break;
  }
  const LimitedExp exp(d);
  const double above_one = std::expm1(exp.exponent);
  return {above_one - exp.exponent, std::abs(d) <= largest_exponent ? -above_one : 0.0};
}

void check_given(const Rollouts& rollouts, const Group& group, const Response& response,
                 const ObjectiveSettings& settings) {
  const auto need = [&](bool present, const char* field, const char* why, const char* cure) {
    require(present, "{}: {} is missing ({}) - {}",
            present ? "" : place_of(rollouts.file, group, &response), field, why, cure);
  };
  if (settings.old_logprobs == OldLogprobs::given)
    need(!response.logprobs.empty(), "logprobs", "[objective] old_logprobs = given",
         "add them with 'longstraw score', or set old_logprobs = computed");
  else if (settings.tis_imp_ratio_cap > 0)
    need(!response.logprobs.empty(), "logprobs", "[objective] tis_imp_ratio_cap is set",
         "keep those of the engine that wrote the response, or set the cap to 0");
  if (settings.kl_loss_coef > 0)
    need(!response.ref_logprobs.empty(), "ref_logprobs", "[objective] kl_loss_coef is set",
         "add them with 'longstraw score --as reference'");
  if (settings.advantages == Advantages::given)
    need(response.advantage.has_value(), "advantage", "[objective] advantages = given",
         "add it, or set advantages = group");
}

}  // namespace

ObjectiveSettings read_objective(Deck& deck) {
  constexpr double any = std::numeric_limits<double>::max();
  ObjectiveSettings o;
  o.temperature = deck.get_in("objective.temperature", o.temperature, 1e-3, 1e3);
  const auto old = deck.one_of("objective.old_logprobs", "computed", {"computed", "given"});
  o.old_logprobs = old == "given" ? OldLogprobs::given : OldLogprobs::computed;
  o.clip_ratio_low = deck.get_in("objective.clip_ratio_low", o.clip_ratio_low, 0.0, 1.0);
  o.clip_ratio_high = deck.get_in("objective.clip_ratio_high", o.clip_ratio_high, 0.0, any);
  o.clip_ratio_c = deck.get_in("objective.clip_ratio_c", o.clip_ratio_c, 1.0, any);
  const auto mode = deck.one_of(
      "objective.loss_agg_mode", "token-mean",
      {"token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"});
  o.loss_agg_mode = mode == "token-mean"            ? Aggregation::token_mean
                    : mode == "seq-mean-token-sum"  ? Aggregation::seq_mean_token_sum
                    : mode == "seq-mean-token-mean" ? Aggregation::seq_mean_token_mean
                                                    : Aggregation::seq_mean_token_sum_norm;
  o.loss_scale_factor = deck.get_in("objective.loss_scale_factor", o.loss_scale_factor, 0.0, any);
  require(o.loss_agg_mode != Aggregation::seq_mean_token_sum_norm || o.loss_scale_factor > 0,
          str("{} (loss_agg_mode = seq-mean-token-sum-norm divides by it) - set it, to the longest "
              "response allowed for instance",
              deck.where("objective.loss_scale_factor")),
          2);
  o.norm_adv_by_std = deck.get("objective.norm_adv_by_std", o.norm_adv_by_std);
  const auto advantages = deck.one_of("objective.advantages", "group", {"group", "given"});
  o.advantages = advantages == "given" ? Advantages::given : Advantages::group;
  o.kl_loss_coef = deck.get_in("objective.kl_loss_coef", o.kl_loss_coef, 0.0, any);
  const auto kl = deck.one_of("objective.kl_loss_type", "k3", {"k1", "k2", "k3"});
  o.kl_loss_type = kl == "k1" ? KlType::k1 : kl == "k2" ? KlType::k2 : KlType::k3;
  o.mask_truncated = deck.get("objective.mask_truncated", o.mask_truncated);
  o.tis_imp_ratio_cap = deck.get_in("objective.tis_imp_ratio_cap", o.tis_imp_ratio_cap, 0.0, any);
  return o;
}

void check_rollouts(const Rollouts& rollouts, const ObjectiveSettings& settings, int64_t vocab,
                    const Grid& grid) {
  check_token_ids(rollouts, vocab, grid);
  for (const auto& group : rollouts.groups) {
    for (const auto& response : group.responses) check_given(rollouts, group, response, settings);
    const auto advantages = group_advantages(group, settings);
    for (size_t i = 0; i < advantages.size(); ++i)
      if (!std::isfinite(advantages[i]))
        throw Error(
            str("{}: advantage is not finite (reward {}, rewards too far apart) - rescale "
                "the rewards",
                place_of(rollouts.file, group, &group.responses[i]), group.responses[i].reward));
  }
}

bool zero_signal(const Group& group) {
  return std::all_of(group.responses.begin(), group.responses.end(),
                     [&](const Response& r) { return r.reward == group.responses.front().reward; });
}

std::vector<double> group_advantages(const Group& group, const ObjectiveSettings& settings) {
  std::vector<double> values;
  if (settings.advantages == Advantages::given) {
    for (const auto& response : group.responses) values.push_back(response.advantage.value_or(0));
    return values;
  }
  // By equality, since the mean of equal numbers need not equal them.
  if (zero_signal(group)) return std::vector<double>(group.responses.size(), 0.0);
  for (const auto& response : group.responses) values.push_back(response.reward);
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (double& x : values) x -= mean, squares += x * x;
  if (!settings.norm_adv_by_std) return values;
  const double divisor = std::sqrt(squares / (count - 1)) + std_epsilon;
  // Rewards far apart overflow the square; an infinite divisor would hide that as advantages of 0.
  for (double& x : values)
    x = std::isfinite(divisor) ? x / divisor : std::numeric_limits<double>::quiet_NaN();
  return values;
}

bool counts(const Response& response, int64_t index, const ObjectiveSettings& settings) {
  if (settings.mask_truncated && response.finish_reason == "length") return false;
  return response.loss_mask.empty() || response.loss_mask[index] == 1;
}

int64_t counted_tokens(const Response& response, const ObjectiveSettings& settings) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < std::ssize(response.ids); ++i) tokens += counts(response, i, settings);
  return tokens;
}

StepDenominators step_denominators(std::span<const Group* const> groups,
                                   const ObjectiveSettings& settings) {
  StepDenominators step;
  for (const Group* group : groups)
    for (const auto& response : group->responses) {
      const int64_t tokens = counted_tokens(response, settings);
      step.tokens += tokens;
      step.responses += tokens > 0;
    }
  return step;
}

double token_weight(int64_t counted, const StepDenominators& step,
                    const ObjectiveSettings& settings) {
  LONGSTRAW_ASSERT(counted > 0 && step.tokens >= counted && step.responses > 0);
  const auto responses = static_cast<double>(step.responses);
  switch (settings.loss_agg_mode) {
    case Aggregation::token_mean: return 1.0 / static_cast<double>(step.tokens);
    case Aggregation::seq_mean_token_sum: return 1.0 / responses;
    case Aggregation::seq_mean_token_mean: return 1.0 / (responses * static_cast<double>(counted));
    case Aggregation::seq_mean_token_sum_norm: break;
  }
  return 1.0 / (responses * settings.loss_scale_factor);
}

TokenLoss token_loss(const TokenValues& token, const ObjectiveSettings& settings) {
  const double a = token.advantage;
  const LimitedExp ratio(token.logprob - token.old_logprob);
  const double low = 1 - settings.clip_ratio_low, high = 1 + settings.clip_ratio_high;
  TokenLoss loss;
  loss.ratio = ratio.value;
  Term pg{-a * ratio.value, -a * ratio.derivative};
  // The larger of the plain and the clipped loss; where it is the clipped one it does not depend on
  // the policy.
  if (const double clipped = -a * std::clamp(ratio.value, low, high); clipped > pg.value) {
    pg = {clipped, 0};
    loss.clipped_low = a < 0;
    loss.clipped_high = a > 0;
  }
  if (const double most = -a * settings.clip_ratio_c; a < 0 && pg.value > most) {
    pg = {most, 0};
    loss.clipped_dual = true;
  }
  const Term kl = settings.kl_loss_coef > 0
                      ? kl_term(token.ref_logprob - token.logprob, settings.kl_loss_type)
                      : Term{};
  loss.pg = token.importance * pg.value;
  loss.kl = kl.value;
  loss.derivative = token.importance * pg.derivative + settings.kl_loss_coef * kl.derivative;
  return loss;
}

Importance truncated_importance(double computed_logprob, double given_logprob,
                                const ObjectiveSettings& settings) {
  const double cap = settings.tis_imp_ratio_cap;
  if (cap == 0) return {};
  const double factor = LimitedExp(computed_logprob - given_logprob).value;
  return {std::min(factor, cap), factor > cap};
}

}  // namespace longstraw
