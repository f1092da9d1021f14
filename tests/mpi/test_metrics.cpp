// The objective of the golden cases, recomputed from their log-probabilities, tokens dealt to
// ranks.
#include "longstraw/policy/metrics.hpp"

#include "longstraw/policy/rollout_lines.hpp"
#include "reference/golden.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace longstraw {
namespace {

// Sums of some tens of terms in double, in another order than torch's.
constexpr double rounding = 1e-12;

ObjectiveSettings settings_of(const nlohmann::json& o) {
  std::string text = "[objective]\n";
  for (const char* key : {"temperature", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c",
                          "norm_adv_by_std", "kl_loss_coef", "loss_scale_factor"})
    if (o.contains(key)) text += str("{} = {}\n", key, o[key].dump());
  for (const char* key : {"old_logprobs", "loss_agg_mode", "kl_loss_type"})
    text += str("{} = {}\n", key, o[key].get<std::string>());
  Deck deck(text, "golden");
  return read_objective(deck);
}

class GoldenObjective : public testing::TestWithParam<const char*> {};

// Adds the tokens of one response that this rank owns, and compares ratios.
void add_response(StepMetrics& metrics, const reference::Golden& golden, const std::string& path,
                  const Response& response, double advantage, const ObjectiveSettings& settings,
                  const StepDenominators& step) {
  const Grid grid = Grid::world();
  const std::string at = path + "/responses/" + response.id;
  const auto logprobs = golden.array(at + "/logprobs").values;
  const auto entropy = golden.array(at + "/entropy").values;
  const auto ratio = golden.array(at + "/ratio").values;
  EXPECT_NEAR(advantage, golden.scalar(at + "/advantage"), rounding);
  const int64_t counted = counted_tokens(response, settings);
  ASSERT_EQ(counted, std::ssize(logprobs));
  const bool given = settings.old_logprobs == OldLogprobs::given;
  const Range mine = grid.mine(counted);
  for (int64_t t = mine.begin; t < mine.end; ++t) {
    const auto loss =
        token_loss({.logprob = logprobs[t],
                    .old_logprob = given ? response.logprobs[t] : logprobs[t],
                    .ref_logprob = settings.kl_loss_coef > 0 ? response.ref_logprobs[t] : NAN,
                    .advantage = advantage},
                   settings);
    EXPECT_NEAR(loss.ratio, ratio[t], rounding * ratio[t]);
    metrics.add_token(loss, token_weight(counted, step, settings), entropy[t], false);
  }
}

TEST_P(GoldenObjective, LossesAdvantagesAndRatios) {
  const Grid grid = Grid::world();
  const reference::Golden golden(GetParam());
  LineReader reader(golden.rollouts());
  const auto rollouts = load_rollouts(reader, OnBadSample::stop, grid);
  std::vector<const Group*> groups;
  for (const auto& group : rollouts.groups) groups.push_back(&group);
  for (const auto& o : golden.description().at("objectives")) {
    const auto settings = settings_of(o);
    const std::string path = "objectives/" + o.at("name").get<std::string>();
    const auto step = step_denominators(groups, settings);
    StepMetrics metrics(settings);
    for (const Group* group : groups) {
      const auto advantages = group_advantages(*group, settings);
      metrics.add_group(*group);
      for (size_t i = 0; i < advantages.size(); ++i)
        add_response(metrics, golden, path, group->responses[i], advantages[i], settings, step);
    }
    const auto summary = metrics.summary(grid);
    EXPECT_NEAR(summary.loss, golden.scalar(path + "/loss"), rounding) << path;
    EXPECT_NEAR(summary.pg_loss, golden.scalar(path + "/pg_loss"), rounding);
    EXPECT_NEAR(summary.kl_loss, golden.scalar(path + "/kl_loss"), rounding);
    EXPECT_EQ(summary.counted_tokens, step.tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenObjective,
                         testing::Values("hybrid", "hybrid_tied_bf16", "hybrid_yarn"));

Response response_of(const std::string& id, double reward, size_t tokens) {
  Response response;
  response.id = id;
  response.reward = reward;
  response.ids.assign(tokens, 1);
  return response;
}

// Two groups: rewards 0, 1 (lengths 1 and 3, the second cut off and masked) and 2, 2 (no signal).
TEST(StepMetrics, HandComputedColumns) {
  const Grid grid = Grid::world();
  ObjectiveSettings settings;
  settings.mask_truncated = true;
  settings.norm_adv_by_std = false;
  settings.kl_loss_coef = 0.5;
  Group a{.id = "a", .prompt = {1, 2, 3}, .responses = {}, .line = 1};
  a.responses = {response_of("a0", 0, 1), response_of("a1", 1, 3)};
  a.responses[1].finish_reason = "length";
  Group b{.id = "b", .prompt = {1}, .responses = {}, .line = 2};
  b.responses = {response_of("b0", 2, 2), response_of("b1", 2, 1)};
  StepMetrics metrics(settings);
  metrics.add_group(a);
  metrics.add_group(b);
  const TokenLoss tokens[4] = {{.pg = 1, .kl = 0.5, .ratio = 0.5, .clipped_low = true},
                               {.pg = 2, .kl = 1.0, .ratio = 1.0},
                               {.pg = 3, .kl = 1.5, .ratio = 1.5, .clipped_high = true},
                               {.pg = 4, .kl = 2.0, .ratio = 5.0, .clipped_dual = true}};
  for (int64_t t = 0; t < 4; ++t)
    if (t % grid.size() == grid.rank())
      metrics.add_token(tokens[t], 0.25, static_cast<double>(t), t == 3);
  const auto s = metrics.summary(grid);
  EXPECT_NEAR(s.pg_loss, 2.5, rounding);
  EXPECT_NEAR(s.kl_loss, 1.25, rounding);
  EXPECT_NEAR(s.loss, 3.125, rounding);
  EXPECT_NEAR(s.entropy, 1.5, rounding);
  EXPECT_NEAR(s.ratio_mean, 2.0, rounding);
  EXPECT_EQ(s.ratio_max, 5.0);
  EXPECT_EQ(s.clip_fraction_low, 0.25);
  EXPECT_EQ(s.clip_fraction_high, 0.25);
  EXPECT_EQ(s.dual_clip_fraction, 0.25);
  EXPECT_EQ(s.tis_capped_fraction, 0.25);
  EXPECT_NEAR(s.reward_mean, 1.25, rounding);
  EXPECT_NEAR(s.reward_std, std::sqrt(2.75 / 3), rounding);
  // a0 counts one token with advantage -0.5, b three with 0.
  EXPECT_NEAR(s.advantage_mean, -0.5 / 4, rounding);
  EXPECT_EQ(s.zero_std_groups, 1);
  EXPECT_EQ(s.masked_responses, 1);
  EXPECT_EQ(s.prompt_tokens, 4);
  EXPECT_EQ(s.response_tokens, 7);
  EXPECT_EQ(s.counted_tokens, 4);
}

TEST(StepMetrics, AnEmptyStepIsAllZero) {
  const auto s = StepMetrics({}).summary(Grid::world());
  EXPECT_EQ(s.loss, 0);
  EXPECT_EQ(s.entropy, 0);
  EXPECT_EQ(s.reward_mean, 0);
  EXPECT_EQ(s.advantage_mean, 0);
}

}  // namespace
}  // namespace longstraw
