#include "longstraw/policy/objective.hpp"

#include "support/errors.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace longstraw {
namespace {

using support::expect_parts;
using support::refusal_of;

// Results of a handful of operations in double.
constexpr double rounding = 1e-14;

Group group_with(const std::vector<double>& rewards, size_t tokens = 1) {
  Group group{.id = "g", .prompt = {1}, .responses = {}, .line = 3};
  for (double reward : rewards) {
    Response response;
    response.id = str("r{}", group.responses.size());
    response.ids.assign(tokens, 1);
    response.reward = reward;
    group.responses.push_back(response);
  }
  return group;
}

Group group_of_lengths(const std::vector<size_t>& lengths) {
  Group group = group_with(std::vector<double>(lengths.size(), 0.0));
  for (size_t i = 0; i < lengths.size(); ++i) group.responses[i].ids.assign(lengths[i], 1);
  return group;
}

StepDenominators denominators(const Group& group, const ObjectiveSettings& settings) {
  const Group* one = &group;
  return step_denominators(std::span(&one, 1), settings);
}

// Trials 1 and 3. Three times 0.1 has another mean than 0.1 in floating point.
TEST(Advantages, AreExactlyZeroWithoutSignal) {
  for (bool by_std : {true, false}) {
    ObjectiveSettings settings;
    settings.norm_adv_by_std = by_std;
    for (const auto& rewards : {std::vector<double>{1, 1, 1, 1}, {0.1, 0.1, 0.1}, {5}, {1e300}}) {
      const Group group = group_with(rewards);
      EXPECT_TRUE(zero_signal(group));
      for (double a : group_advantages(group, settings)) EXPECT_EQ(a, 0.0);
    }
  }
  EXPECT_FALSE(zero_signal(group_with({0, 1})));
}

TEST(Advantages, HandComputed) {
  ObjectiveSettings settings;
  // Mean 2, sample standard deviation sqrt((4 + 1 + 9) / 2) = sqrt(7).
  const Group group = group_with({0, 1, 5});
  const auto scaled = group_advantages(group, settings);
  settings.norm_adv_by_std = false;
  const auto plain = group_advantages(group, settings);
  const std::vector<double> expected = {-2, -1, 3};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(plain[i], expected[i], rounding);
    EXPECT_NEAR(scaled[i], expected[i] / (std::sqrt(7.0) + 1e-6), rounding);
  }
}

// Trial 2: the mean is 1 + 2.5e-8 and the standard deviation 5e-8, so 1e-6 dominates the divisor.
TEST(Advantages, NearlyEqualRewardsDoNotExplode) {
  ObjectiveSettings settings;
  const Group group = group_with({1, 1, 1, 1 + 1e-7});
  // 1e-7 next to 1 is known to 2e-16, that is to 2e-9 of itself.
  EXPECT_NEAR(group_advantages(group, settings)[3], 7.5e-8 / 1.05e-6, 1e-8);
  settings.norm_adv_by_std = false;
  EXPECT_NEAR(group_advantages(group, settings)[3], 7.5e-8, 1e-15);
}

// Trial 15.
TEST(Advantages, ExtremeRewardsAreFiniteOrRefused) {
  ObjectiveSettings settings;
  const auto a = group_advantages(group_with({1e30, -1e30}), settings);
  EXPECT_NEAR(a[0], std::sqrt(0.5), rounding);
  EXPECT_NEAR(a[1], -std::sqrt(0.5), rounding);
  for (const auto& rewards : {std::vector<double>{1e308, 1e308, -1e308}, {1e200, -1e200}}) {
    const Rollouts rollouts{.file = "r.jsonl", .groups = {group_with(rewards)}};
    expect_parts(refusal_of([&] { check_rollouts(rollouts, settings, 10, Grid::world()); }).message,
                 {"r.jsonl line 3", "group g", "response r0", "not finite"});
  }
}

TEST(Advantages, GivenOnesAreUsedAsTheyAre) {
  ObjectiveSettings settings;
  settings.advantages = Advantages::given;
  Rollouts rollouts{.file = "r.jsonl", .groups = {group_with({1, 1})}};
  rollouts.groups[0].responses[0].advantage = 0.75;
  expect_parts(refusal_of([&] { check_rollouts(rollouts, settings, 10, Grid::world()); }).message,
               {"response r1", "advantage is missing", "advantages = given"});
  rollouts.groups[0].responses[1].advantage = -3;
  EXPECT_NO_THROW(check_rollouts(rollouts, settings, 10, Grid::world()));
  EXPECT_EQ(group_advantages(rollouts.groups[0], settings), (std::vector<double>{0.75, -3}));
}

TEST(CheckRollouts, NamesWhatTheObjectiveNeeds) {
  Rollouts rollouts{.file = "r.jsonl", .groups = {group_with({0, 1})}};
  const auto message = [&](const ObjectiveSettings& settings, int64_t vocab = 10) {
    return refusal_of([&] { check_rollouts(rollouts, settings, vocab, Grid::world()); }).message;
  };
  ObjectiveSettings plain, given, reference, corrected;
  given.old_logprobs = OldLogprobs::given;
  reference.kl_loss_coef = 0.1;
  corrected.tis_imp_ratio_cap = 2;
  EXPECT_EQ(message(plain), "");
  expect_parts(message(plain, 1), {"prompt[0]", "vocabulary of 1"});
  expect_parts(message(given), {"line 3: group g: response r0", "logprobs is missing"});
  expect_parts(message(reference), {"ref_logprobs is missing", "score --as reference"});
  expect_parts(message(corrected), {"logprobs is missing", "tis_imp_ratio_cap"});
  for (auto& response : rollouts.groups[0].responses)
    response.logprobs = response.ref_logprobs = {-1};
  for (const auto& settings : {given, reference, corrected}) EXPECT_EQ(message(settings), "");
}

// Trials 42 and 43: lengths 1, 10, 100 with the constant token losses 1, 2, 3.
TEST(Aggregation, HandComputedForThreeLengths) {
  const Group group = group_of_lengths({1, 10, 100});
  ObjectiveSettings settings;
  settings.loss_scale_factor = 50;
  const auto loss = [&](Aggregation mode) {
    settings.loss_agg_mode = mode;
    const auto step = denominators(group, settings);
    EXPECT_EQ(step.tokens, 111);
    EXPECT_EQ(step.responses, 3);
    double sum = 0;
    for (int i = 0; i < 3; ++i) {
      const int64_t n = counted_tokens(group.responses[i], settings);
      for (int64_t t = 0; t < n; ++t) sum += token_weight(n, step, settings) * (i + 1);
    }
    return sum;
  };
  // 321 = 1 * 1 + 10 * 2 + 100 * 3. Sums of 111 terms: some roundings.
  EXPECT_NEAR(loss(Aggregation::token_mean), 321.0 / 111, 1e-12);
  EXPECT_NEAR(loss(Aggregation::seq_mean_token_sum), 107.0, 1e-12);
  EXPECT_NEAR(loss(Aggregation::seq_mean_token_mean), 2.0, 1e-12);
  EXPECT_NEAR(loss(Aggregation::seq_mean_token_sum_norm), 2.14, 1e-12);
}

TEST(Aggregation, DenominatorsAreThoseOfTheWholeStep) {
  const Group a = group_of_lengths({3, 5}), b = group_of_lengths({7});
  const std::vector<const Group*> both = {&a, &b};
  const auto step = step_denominators(both, {});
  EXPECT_EQ(step.tokens, 15);
  EXPECT_EQ(step.responses, 3);
}

// Trial 41: what does not count is in no denominator, so a response of 3 tokens is worth the same
// with and without 297 masked ones behind it.
TEST(Aggregation, MaskedTokensAreInNoDenominator) {
  Group plain = group_of_lengths({3, 300}), padded = group_of_lengths({300, 300});
  Response& response = padded.responses[0];
  response.loss_mask.assign(300, 0);
  for (int t : {0, 4, 299}) response.loss_mask[t] = 1;
  for (auto mode : {Aggregation::token_mean, Aggregation::seq_mean_token_sum,
                    Aggregation::seq_mean_token_mean, Aggregation::seq_mean_token_sum_norm}) {
    ObjectiveSettings settings;
    settings.loss_agg_mode = mode;
    settings.loss_scale_factor = 100;
    EXPECT_EQ(counted_tokens(response, settings), 3);
    EXPECT_EQ(token_weight(3, denominators(plain, settings), settings),
              token_weight(3, denominators(padded, settings), settings));
  }
  EXPECT_TRUE(counts(response, 4, {}));
  EXPECT_FALSE(counts(response, 5, {}));
}

TEST(Aggregation, AResponseWithoutCountedTokensIsNoResponse) {
  Group group = group_of_lengths({3, 4});
  group.responses[0].loss_mask = {0, 0, 0};
  const auto step = denominators(group, {});
  EXPECT_EQ(step.tokens, 4);
  EXPECT_EQ(step.responses, 1);
}

// Trial 46.
TEST(Aggregation, TruncatedResponsesCanBeMasked) {
  Group group = group_of_lengths({3, 4});
  group.responses[0].reward = 1;
  group.responses[0].finish_reason = "length";
  group.responses[1].finish_reason = "stop";
  ObjectiveSettings settings;
  EXPECT_EQ(denominators(group, settings).tokens, 7);
  const auto before = group_advantages(group, settings);
  settings.mask_truncated = true;
  EXPECT_EQ(denominators(group, settings).tokens, 4);
  EXPECT_EQ(denominators(group, settings).responses, 1);
  EXPECT_FALSE(counts(group.responses[0], 0, settings));
  // Its reward still is in the group's mean.
  EXPECT_EQ(group_advantages(group, settings), before);
  EXPECT_LT(before[1], 0);
}

TokenLoss loss_at_ratio(double ratio, double advantage, const ObjectiveSettings& settings) {
  return token_loss({.logprob = -2 + std::log(ratio), .old_logprob = -2, .advantage = advantage},
                    settings);
}

// Trial 40: low 0.2, high 0.28, dual clip at 3 (and at 1.3).
TEST(TokenLoss, ClipsOnTheSideWhereTheGainIs) {
  ObjectiveSettings settings;
  settings.clip_ratio_high = 0.28;
  struct Case {
    double ratio, advantage, pg, derivative;
    bool low, high, dual;
  };
  const auto check = [&](const std::vector<Case>& cases) {
    for (const auto& c : cases) {
      const auto loss = loss_at_ratio(c.ratio, c.advantage, settings);
      EXPECT_NEAR(loss.pg, c.pg, rounding) << c.ratio << " " << c.advantage;
      EXPECT_NEAR(loss.derivative, c.derivative, rounding);
      EXPECT_NEAR(loss.ratio, c.ratio, rounding);
      EXPECT_EQ(loss.clipped_low, c.low);
      EXPECT_EQ(loss.clipped_high, c.high);
      EXPECT_EQ(loss.clipped_dual, c.dual);
    }
  };
  check({{1.5, 2, -2.56, 0, false, true, false},
         {1.5, -2, 3.0, 3.0, false, false, false},
         {0.5, 2, -1.0, -1.0, false, false, false},
         {0.5, -2, 1.6, 0, true, false, false},
         {1.1, 2, -2.2, -2.2, false, false, false},
         {0.9, -2, 1.8, 1.8, false, false, false},
         {5.0, -2, 6.0, 0, false, false, true},
         {5.0, 2, -2.56, 0, false, true, false},
         {1.5, 0, 0, 0, false, false, false}});
  settings.clip_ratio_c = 1.3;
  check({{1.5, -2, 2.6, 0, false, false, true}, {1.2, -2, 2.4, 2.4, false, false, false}});
}

// Trial 37: the policy's own value as old one.
TEST(TokenLoss, RatioIsOneWhereOldIsTheValueItself) {
  const auto loss =
      token_loss({.logprob = -3.7, .old_logprob = -3.7, .advantage = 0.5}, ObjectiveSettings());
  EXPECT_EQ(loss.ratio, 1.0);
  EXPECT_EQ(loss.pg, -0.5);
  EXPECT_EQ(loss.derivative, -0.5);
}

TEST(TokenLoss, ExponentsAreLimited) {
  ObjectiveSettings settings;
  settings.clip_ratio_c = 1e300;
  settings.kl_loss_coef = 1;
  const auto loss = token_loss(
      {.logprob = -1, .old_logprob = -1000, .ref_logprob = 900, .advantage = -1}, settings);
  EXPECT_EQ(loss.ratio, std::exp(20.0));
  EXPECT_EQ(loss.pg, std::exp(20.0));
  EXPECT_NEAR(loss.kl, std::exp(20.0) - 21, 1e-6);  // of 5e8: rounding
  EXPECT_EQ(loss.derivative, 0);
}

// Trial 44.
TEST(TokenLoss, KlIsZeroAtEqualityAndHasItsSign) {
  ObjectiveSettings settings;
  settings.kl_loss_coef = 0.5;
  const auto at = [&](KlType type, double logprob, double reference) {
    settings.kl_loss_type = type;
    return token_loss(
        {.logprob = logprob, .old_logprob = logprob, .ref_logprob = reference, .advantage = 0},
        settings);
  };
  for (auto type : {KlType::k1, KlType::k2, KlType::k3}) EXPECT_EQ(at(type, -2, -2).kl, 0);
  // d = ref - logprob = -0.5
  EXPECT_NEAR(at(KlType::k1, -1.5, -2).kl, 0.5, rounding);
  EXPECT_NEAR(at(KlType::k2, -1.5, -2).kl, 0.125, rounding);
  EXPECT_NEAR(at(KlType::k3, -1.5, -2).kl, std::exp(-0.5) - 0.5, rounding);
  EXPECT_NEAR(at(KlType::k1, -1.5, -2).derivative, 0.5, rounding);
  EXPECT_NEAR(at(KlType::k2, -1.5, -2).derivative, 0.25, rounding);
  EXPECT_NEAR(at(KlType::k3, -1.5, -2).derivative, 0.5 * (1 - std::exp(-0.5)), rounding);
  // k3 never falls below zero, and pulls towards the reference from both sides.
  for (double d = -19; d < 19; d += 0.37) {
    const auto loss = at(KlType::k3, -1, -1 + d);
    EXPECT_GE(loss.kl, 0) << d;
    EXPECT_LT(loss.derivative * d, 0) << d;
  }
  EXPECT_GE(at(KlType::k3, -1, -1 + 1e-12).kl, 0);
}

TEST(TokenLoss, KlIsNotReadWithoutItsCoefficient) {
  const auto loss = token_loss({.logprob = -1, .old_logprob = -1, .ref_logprob = NAN}, {});
  EXPECT_EQ(loss.kl, 0);
  EXPECT_EQ(loss.derivative, 0);
}

TEST(TokenLoss, DerivativeMatchesFiniteDifferences) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  constexpr double h = 1e-5;
  for (int i = 0; i < 5000; ++i) {
    ObjectiveSettings settings;
    settings.clip_ratio_high = 0.28;
    settings.clip_ratio_c = 1.6;
    settings.kl_loss_coef = 0.3;
    settings.kl_loss_type = static_cast<KlType>(i % 3);
    TokenValues token{.logprob = -2 + normal(random),
                      .old_logprob = -2 + normal(random),
                      .ref_logprob = -2 + normal(random),
                      .advantage = normal(random),
                      .importance = 0.5 + 0.1 * (i % 7)};
    const auto value = [&](double shift) {
      TokenValues moved = token;
      moved.logprob += shift;
      const auto loss = token_loss(moved, settings);
      return loss.pg + settings.kl_loss_coef * loss.kl;
    };
    // Not across a corner, where there is no derivative.
    const double ratio = std::exp(token.logprob - token.old_logprob);
    bool corner = false;
    for (double edge : {0.8, 1.28, 1.6}) corner |= std::abs(std::log(ratio / edge)) < 2 * h;
    if (corner) continue;
    const auto loss = token_loss(token, settings);
    // h^2 times a third derivative of up to some tens, and rounding over h.
    EXPECT_NEAR((value(h) - value(-h)) / (2 * h), loss.derivative, 1e-8 * (1 + ratio * 10));
  }
}

// Trial 38.
TEST(Importance, IsCappedAndDoesNotOverflow) {
  ObjectiveSettings settings;
  EXPECT_EQ(truncated_importance(-1, -50, settings).factor, 1.0);
  settings.tis_imp_ratio_cap = 2;
  const auto small = truncated_importance(-1.0, -1.1, settings);
  EXPECT_NEAR(small.factor, std::exp(0.1), rounding);
  EXPECT_FALSE(small.capped);
  EXPECT_NEAR(truncated_importance(-1.0, -0.9, settings).factor, std::exp(-0.1), rounding);
  const auto large = truncated_importance(-1.0, -2.0, settings);
  EXPECT_EQ(large.factor, 2.0);
  EXPECT_TRUE(large.capped);
  settings.tis_imp_ratio_cap = 1e300;
  EXPECT_EQ(truncated_importance(0, -1e6, settings).factor, std::exp(20.0));
  EXPECT_EQ(truncated_importance(-1e6, 0, settings).factor, std::exp(-20.0));
}

TEST(Importance, IsAConstantFactorOfThePolicyTermOnly) {
  ObjectiveSettings settings;
  settings.kl_loss_coef = 0.1;
  settings.kl_loss_type = KlType::k1;
  TokenValues token{.logprob = -1, .old_logprob = -1, .ref_logprob = -2, .advantage = 3};
  token.importance = 0.5;
  const auto loss = token_loss(token, settings);
  EXPECT_EQ(loss.pg, -1.5);
  EXPECT_EQ(loss.kl, 1.0);
  EXPECT_NEAR(loss.derivative, -1.5 + 0.1, rounding);
}

TEST(ReadObjective, DefaultsAreTheStatedOnes) {
  Deck deck("", "a.ini");
  const auto settings = read_objective(deck);
  const ObjectiveSettings stated;
  EXPECT_EQ(settings.temperature, stated.temperature);
  EXPECT_EQ(settings.old_logprobs, OldLogprobs::computed);
  EXPECT_EQ(settings.clip_ratio_low, 0.2);
  EXPECT_EQ(settings.clip_ratio_high, 0.2);
  EXPECT_EQ(settings.clip_ratio_c, 3.0);
  EXPECT_EQ(settings.loss_agg_mode, Aggregation::token_mean);
  EXPECT_TRUE(settings.norm_adv_by_std);
  EXPECT_EQ(settings.advantages, Advantages::group);
  EXPECT_EQ(settings.kl_loss_coef, 0);
  EXPECT_EQ(settings.kl_loss_type, KlType::k3);
  EXPECT_FALSE(settings.mask_truncated);
  EXPECT_EQ(settings.tis_imp_ratio_cap, 0);
}

TEST(ReadObjective, ReadsNamesAndRefusesWhatIsOutOfRange) {
  const std::string all =
      "[objective]\nold_logprobs = given\nloss_agg_mode = seq-mean-token-sum-norm\n"
      "loss_scale_factor = 32\nadvantages = given\nkl_loss_type = k2\nmask_truncated = true\n";
  Deck deck(all, "a.ini");
  const auto settings = read_objective(deck);
  EXPECT_NO_THROW(deck.check_all_read());
  EXPECT_EQ(settings.old_logprobs, OldLogprobs::given);
  EXPECT_EQ(settings.loss_agg_mode, Aggregation::seq_mean_token_sum_norm);
  EXPECT_EQ(settings.loss_scale_factor, 32);
  EXPECT_EQ(settings.advantages, Advantages::given);
  EXPECT_EQ(settings.kl_loss_type, KlType::k2);
  EXPECT_TRUE(settings.mask_truncated);
  for (const char* bad : {"temperature=0", "clip_ratio_low=1.5", "clip_ratio_c=0.5",
                          "loss_agg_mode=mean", "loss_scale_factor=0", "kl_loss_coef=-1"}) {
    Deck wrong(all, "a.ini", std::vector<std::string>{std::string("objective.") + bad});
    EXPECT_EQ(refusal_of([&] { read_objective(wrong); }).status, 2) << bad;
  }
}

}  // namespace
}  // namespace longstraw
