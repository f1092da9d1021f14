// Which groups a step takes, and the learning rate of a step.
#include "longstraw/sim/settings.hpp"

#include "support/errors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <set>

namespace longstraw {
namespace {

using Steps = std::vector<std::vector<int64_t>>;

void expect_refused(const std::function<void()>& act, std::initializer_list<std::string> parts) {
  const support::Refusal refusal = support::refusal_of(act);
  EXPECT_EQ(refusal.status, 2);
  support::expect_parts(refusal.message, parts);
}

Settings settings_of(int64_t groups_per_step, int64_t epochs, int64_t steps = 0) {
  Settings s;
  s.rollouts.groups_per_step = groups_per_step;
  s.rollouts.epochs = epochs;
  s.steps = steps;
  return s;
}

TEST(StepsOf, TakesGroupsInTheOrderOfTheFile) {
  EXPECT_EQ(steps_of(settings_of(2, 1), 4), (Steps{{0, 1}, {2, 3}}));
  EXPECT_EQ(steps_of(settings_of(3, 1), 3), (Steps{{0, 1, 2}}));
}

TEST(StepsOf, LastStepOfAnEpochTakesWhatIsLeft) {
  EXPECT_EQ(steps_of(settings_of(2, 2), 3), (Steps{{0, 1}, {2}, {0, 1}, {2}}));
}

TEST(StepsOf, StopsAtTheNumberOfSteps) {
  EXPECT_EQ(steps_of(settings_of(2, 2, 3), 3), (Steps{{0, 1}, {2}, {0, 1}}));
  EXPECT_EQ(steps_of(settings_of(2, 1, 1), 4), (Steps{{0, 1}}));
}

TEST(CheckSteps, RefusesWhatTheRolloutsDoNotHave) {
  check_steps(settings_of(2, 2, 4), 3);
  check_steps(settings_of(3, 1), 3);
  expect_refused(
      [] { check_steps(settings_of(2, 2, 5), 3); },
      {"run.steps = 5", "2 epoch(s) of 3 group(s), 2 a step, have 4", "rollouts.epochs"});
  expect_refused([] { check_steps(settings_of(4, 1), 3); }, {"groups_per_step = 4", "3 group(s)"});
}

TEST(CheckSteps, RefusesMoreThanARunCanList) {
  constexpr int64_t any = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(steps_in_epochs(settings_of(1, any).rollouts, 3), any);
  for (const int64_t epochs : {int64_t{1} << 40, any})
    expect_refused([&] { check_steps(settings_of(1, epochs), 3); },
                   {"steps", "lower rollouts.epochs", "run.steps"});
  check_steps(settings_of(1, any, 1000), 3);
  expect_refused([] { check_steps(settings_of(1, any, int64_t{1} << 40), 3); },
                 {"lower run.steps"});
}

TEST(StepsOf, ShufflesEachEpochInItsOwnWay) {
  Settings s = settings_of(10, 3);
  s.rollouts.shuffle = true;
  s.seed = 5;
  const Steps steps = steps_of(s, 10);
  ASSERT_EQ(steps.size(), 3u);
  std::set<std::vector<int64_t>> orders;
  for (auto step : steps) {
    orders.insert(step);
    std::sort(step.begin(), step.end());
    EXPECT_EQ(step, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  EXPECT_EQ(orders.size(), 3u);
  EXPECT_EQ(steps_of(s, 10), steps);
  s.seed = 6;
  EXPECT_NE(steps_of(s, 10), steps);
}

// Each of the n! orders of three groups equally often: chi-square with 5 degrees of freedom is
// above 20.5 with probability 0.001; seeds are fixed, so the test gives the same each time.
TEST(StepsOf, ShuffleIsFair) {
  Settings s = settings_of(3, 600);
  s.rollouts.shuffle = true;
  std::map<std::vector<int64_t>, double> seen;
  for (const auto& step : steps_of(s, 3)) ++seen[step];
  ASSERT_EQ(seen.size(), 6u);
  double chi_square = 0;
  for (const auto& [order, count] : seen) chi_square += (count - 100) * (count - 100) / 100;
  EXPECT_LT(chi_square, 20.5);
}

OptimizerSettings rate(LearningRateSchedule schedule, int64_t warmup) {
  return {.lr = 0.5, .schedule = schedule, .warmup_steps = warmup};
}

TEST(LearningRate, RisesToItsFullValueAtTheLastWarmupStep) {
  for (auto schedule : {LearningRateSchedule::constant, LearningRateSchedule::linear,
                        LearningRateSchedule::cosine}) {
    const auto s = rate(schedule, 4);
    for (int64_t step = 0; step < 4; ++step)
      EXPECT_DOUBLE_EQ(learning_rate(s, step, 10), 0.5 * static_cast<double>(step + 1) / 4);
    EXPECT_DOUBLE_EQ(learning_rate(s, 4, 10), 0.5);
  }
}

TEST(LearningRate, StaysOrFalls) {
  for (int64_t step = 2; step < 12; ++step) {
    const double done = static_cast<double>(step - 2) / 10;
    EXPECT_DOUBLE_EQ(learning_rate(rate(LearningRateSchedule::constant, 2), step, 12), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(rate(LearningRateSchedule::linear, 2), step, 12),
                     0.5 * (1 - done));
    EXPECT_NEAR(learning_rate(rate(LearningRateSchedule::cosine, 2), step, 12),
                0.25 * (1 + std::cos(std::numbers::pi * done)), 1e-15);
  }
  EXPECT_DOUBLE_EQ(learning_rate(rate(LearningRateSchedule::linear, 2), 12, 12), 0);
  EXPECT_NEAR(learning_rate(rate(LearningRateSchedule::cosine, 2), 12, 12), 0, 1e-15);
}

TEST(LearningRate, WarmupMayOutlastTheRun) {
  EXPECT_DOUBLE_EQ(learning_rate(rate(LearningRateSchedule::linear, 8), 3, 4), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(rate(LearningRateSchedule::linear, 0), 0, 1), 0.5);
}

}  // namespace
}  // namespace longstraw
