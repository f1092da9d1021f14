// Steps in which not everything contributes: groups and responses without signal, the shortest
// prompts, and old log-probabilities of an earlier use.
#include "reference/slope.hpp"

#include <map>
#include <numeric>

namespace longstraw {
namespace {

using reference::made_groups;
using reference::MadeRun;

constexpr GradientMode both_modes[] = {GradientMode::frozen, GradientMode::exact};
// Too small to change any sum, but not zero.
constexpr double nothing = 1e-300;

ObjectiveSettings given_advantages() {
  ObjectiveSettings o;
  o.advantages = Advantages::given;
  o.old_logprobs = OldLogprobs::given;
  return o;
}

std::vector<Group> with_advantages(std::vector<Group> groups,
                                   const std::vector<std::vector<double>>& advantages) {
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t r = 0; r < groups[g].responses.size(); ++r)
      groups[g].responses[r].advantage = advantages[g][r];
  return groups;
}

using Counts = std::map<TickKind, int>;

struct Ran {
  std::vector<double> gradient;
  double loss = 0;
  Counts ticks;
};

Ran ran(const std::vector<Group>& groups, GradientMode mode) {
  MadeRun run(Grid::world(), reference::small_config(), groups, given_advantages(), DType::float64,
              {.mode = mode, .block_tokens = 16, .page_tokens = 8});
  Ran result;
  run.run_ticks([&](const Tick& tick) { ++result.ticks[tick.kind]; });
  result.gradient = run.whole(ReducedGradient(run.context));
  result.loss = run.stepper.summary().loss;
  return result;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  return std::transform_reduce(
      a.begin(), a.end(), b.begin(), 0.0, [](double x, double y) { return std::max(x, y); },
      [](double x, double y) { return std::abs(x - y); });
}

// What is left out gives the same step as what is replayed with next to no advantage.
TEST(Signal, ResponsesAndGroupsWithoutItAreScoredOnlyAndChangeNothing) {
  const auto groups = made_groups(
      {{.prompt = 33, .responses = {5, 40, 3}}, {.prompt = 50, .responses = {4, 2}}}, 61, 7);
  const auto skipping = with_advantages(groups, {{1, 0, -0.5}, {0, 0}});
  const auto replaying = with_advantages(groups, {{1, nothing, -0.5}, {nothing, nothing}});
  for (GradientMode mode : both_modes) {
    const Ran skipped = ran(skipping, mode), replayed = ran(replaying, mode);
    EXPECT_LT(largest_difference(skipped.gradient, replayed.gradient), 1e-280) << name_of(mode);
    EXPECT_EQ(skipped.loss, replayed.loss) << name_of(mode);

    Counts expected = {{TickKind::capture_block, 2 + 4},
                       {TickKind::score_block, 3 + 1 + 1},
                       {TickKind::replay_block, 1 + 1}};
    if (mode == GradientMode::exact) expected[TickKind::prompt_backward_block] = 2;
    EXPECT_EQ(skipped.ticks, expected) << name_of(mode);
    expected[TickKind::replay_block] += expected[TickKind::score_block];
    expected.erase(TickKind::score_block);
    expected[TickKind::advance_block] = 2;
    if (mode == GradientMode::exact) expected[TickKind::prompt_backward_block] += 4;
    EXPECT_EQ(replayed.ticks, expected) << name_of(mode);
  }
}

TEST(Signal, StepWithoutAnyHasAGradientOfZeroAndIsNotWalked) {
  auto groups =
      made_groups({{.prompt = 33, .responses = {5, 40}}, {.prompt = 1, .responses = {4}}}, 61, 8);
  for (Group& group : groups)
    for (Response& response : group.responses) response.reward = 0.25;
  for (GradientMode mode : both_modes) {
    MadeRun run(Grid::world(), reference::small_config(), groups, {}, DType::float64,
                {.mode = mode, .block_tokens = 16});
    EXPECT_FALSE(has_signal(run.plan));
    run.run_ticks([&](const Tick& tick) {
      EXPECT_TRUE(tick.kind == TickKind::capture_block || tick.kind == TickKind::score_block);
    });
    const auto gradient = run.whole(ReducedGradient(run.context));
    EXPECT_EQ(gradient, std::vector<double>(gradient.size(), 0.0)) << name_of(mode);
    EXPECT_EQ(run.stepper.summary().loss, 0);
    EXPECT_EQ(run.stepper.summary().zero_std_groups, 2);
    EXPECT_EQ(run.peak("boundary gradient"), 0);
  }
}

// Equal rewards with a KL term: the group has a gradient all the same, and is walked for it.
TEST(Signal, KlAloneIsASignal) {
  auto groups = made_groups({{.prompt = 33, .responses = {5, 3}}}, 61, 9);
  for (Response& response : groups[0].responses) response.reward = 1;
  ObjectiveSettings objective;
  objective.kl_loss_coef = 0.1;
  MadeRun run(Grid::world(), reference::small_config(), groups, objective, DType::float64,
              {.block_tokens = 16});
  Counts ticks;
  run.run_ticks([&](const Tick& tick) { ++ticks[tick.kind]; });
  EXPECT_EQ(ticks[TickKind::prompt_backward_block], 2);
  EXPECT_GT(ReducedGradient(run.context).norm(run.grid, run.stream), 0);
}

TEST(Signal, ShortestPromptsHaveTheSlopeOfTheLoss) {
  const ModelConfig config = reference::small_config();
  for (int64_t prompt : {1, 2, 3})
    for (int64_t block : {1, 64}) {
      auto groups = made_groups({{.prompt = prompt, .responses = {3, 1, 2}}}, config.vocab, 10);
      groups = with_advantages(groups, {{1, -0.7, 0.4}});
      const auto objective = given_advantages();
      const auto gradient = [&](GradientMode mode) {
        return MadeRun(Grid::world(), config, groups, objective, DType::float64,
                       {.mode = mode, .block_tokens = block, .page_tokens = 2})
            .gradient();
      };
      const auto exact = gradient(GradientMode::exact);
      MadeRun values(Grid::world(), config, groups, objective, DType::float64,
                     {.block_tokens = 64, .values_only = true});
      reference::expect_slope_of_loss(values, exact, {.directions = 3});
      // A prompt of one token has nothing before the boundary.
      EXPECT_EQ(exact == gradient(GradientMode::frozen), prompt == 1) << prompt;
    }
}

void shift_weights(const Parameters& parameters, double by) {
  double* const weights = parameters.weights().data<double>();
  for (int64_t i = 0; i < parameters.list().size(); ++i)
    weights[i] += by * reference::normal(3, 9, i);
}

// The second use of a rollout: the ratio is to what the weights of its first use said.
TEST(OldLogprobs, AreThoseOfTheFirstUse) {
  const ModelConfig config = reference::small_config();
  const auto groups = made_groups({{.prompt = 20, .responses = {30, 4}}}, config.vocab, 11);
  MadeRun run(Grid::world(), config, groups, {}, DType::float64,
              {.block_tokens = 16, .keep_logprobs = true});
  const auto step = [&] {
    run.stepper.begin_step(run.groups);
    run.run_ticks();
    return run.stepper.summary();
  };
  const auto ratios_to = [&](const Scores& first) {
    double largest = 0, sum = 0, count = 0;
    for (const auto& [id, now] : run.stepper.logprobs())
      for (size_t i = 0; i < now.size(); ++i) {
        const double ratio = std::exp(now[i] - first.at(id)[i]);
        largest = std::max(largest, ratio);
        sum += ratio, ++count;
      }
    return std::pair{sum / count, largest};
  };

  const StepSummary first = step();
  EXPECT_EQ(first.ratio_mean, 1);
  EXPECT_EQ(first.ratio_max, 1);
  const Scores first_scores = run.stepper.logprobs();
  for (int use = 2; use <= 3; ++use) {
    shift_weights(run.parameters, 0.01);
    const StepSummary later = step();
    const auto [mean, largest] = ratios_to(first_scores);
    EXPECT_GT(std::abs(later.ratio_max - 1), 1e-3) << use;
    EXPECT_NEAR(later.ratio_mean, mean, 1e-12) << use;
    EXPECT_NEAR(later.ratio_max, largest, 1e-12) << use;
  }
}

}  // namespace
}  // namespace longstraw
