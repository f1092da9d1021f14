// The order of ticks for hand-made plans.
#include "longstraw/sim/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace longstraw {

void PrintTo(const Tick& tick, std::ostream* out) {
  *out << name_of(tick.kind) << " step " << tick.step << " group " << tick.group << " response "
       << tick.response << " block " << tick.block;
}

namespace {

constexpr int64_t step = 7;

std::vector<Tick> ticks_of(const StepPlan& plan) {
  std::vector<Tick> ticks = {first_tick(step, plan)};
  while (ticks.back().kind != TickKind::update) ticks.push_back(next_tick(ticks.back(), plan));
  return ticks;
}

Tick capture(int64_t group, int64_t block) {
  return {TickKind::capture_block, step, group, 0, block};
}
Tick score(int64_t group, int64_t response, int64_t block) {
  return {TickKind::score_block, step, group, response, block};
}
Tick advance(int64_t group, int64_t response, int64_t block) {
  return {TickKind::advance_block, step, group, response, block};
}
Tick replay(int64_t group, int64_t response, int64_t block) {
  return {TickKind::replay_block, step, group, response, block};
}
Tick walk(int64_t group, int64_t block) {
  return {TickKind::prompt_backward_block, step, group, 0, block};
}
Tick update() { return {TickKind::update, step, 0, 0, 0}; }

TEST(Schedule, CapturesReplaysAndWalksAGroup) {
  const StepPlan plan = {{.prompt_blocks = 2, .responses = {{1, true}, {3, true}}, .walks = true}};
  EXPECT_EQ(ticks_of(plan),
            (std::vector<Tick>{capture(0, 0), capture(0, 1), replay(0, 0, 0), advance(0, 1, 0),
                               advance(0, 1, 1), replay(0, 1, 2), replay(0, 1, 1), replay(0, 1, 0),
                               walk(0, 1), walk(0, 0), update()}));
}

TEST(Schedule, FrozenStopsAtTheBoundary) {
  const StepPlan plan = {{.prompt_blocks = 2, .responses = {{1, true}}, .walks = false}};
  EXPECT_EQ(ticks_of(plan),
            (std::vector<Tick>{capture(0, 0), capture(0, 1), replay(0, 0, 0), update()}));
}

TEST(Schedule, PromptOfOneTokenHasNothingToCaptureOrWalk) {
  const StepPlan plan = {{.prompt_blocks = 0, .responses = {{2, true}, {1, false}}, .walks = true}};
  EXPECT_EQ(ticks_of(plan), (std::vector<Tick>{advance(0, 0, 0), replay(0, 0, 1), replay(0, 0, 0),
                                               score(0, 1, 0), update()}));
}

TEST(Schedule, ResponseThatDoesNotContributeIsScoredForward) {
  const StepPlan plan = {
      {.prompt_blocks = 1, .responses = {{3, false}, {1, false}}, .walks = false}};
  EXPECT_EQ(ticks_of(plan), (std::vector<Tick>{capture(0, 0), score(0, 0, 0), score(0, 0, 1),
                                               score(0, 0, 2), score(0, 1, 0), update()}));
}

TEST(Schedule, GroupsFollowEachOther) {
  const StepPlan plan = {{.prompt_blocks = 1, .responses = {{1, true}}, .walks = true},
                         {.prompt_blocks = 0, .responses = {{1, true}}, .walks = true},
                         {.prompt_blocks = 1, .responses = {{1, false}}, .walks = false}};
  EXPECT_EQ(ticks_of(plan),
            (std::vector<Tick>{capture(0, 0), replay(0, 0, 0), walk(0, 0), replay(1, 0, 0),
                               capture(2, 0), score(2, 0, 0), update()}));
}

// All small plans of two groups: no tick twice, and of each kind as many as there are blocks.
TEST(Schedule, VisitsEveryBlockOnce) {
  std::vector<GroupPlan> groups;
  for (int64_t prompt : {0, 1, 3})
    for (bool walks : {false, true})
      for (int64_t blocks : {1, 2, 4})
        for (bool replays : {false, true})
          groups.push_back({.prompt_blocks = prompt,
                            .responses = {{blocks, replays}, {2, true}, {blocks, !replays}},
                            .walks = walks});
  for (const GroupPlan& first : groups) {
    for (const GroupPlan& second : groups) {
      const auto ticks = ticks_of({first, second});
      const auto count = [&](TickKind kind) {
        return std::count_if(ticks.begin(), ticks.end(),
                             [&](const Tick& tick) { return tick.kind == kind; });
      };
      int64_t prompt = 0, walked = 0, scored = 0, replayed = 0, advanced = 0;
      for (const GroupPlan* group : {&first, &second}) {
        prompt += group->prompt_blocks;
        walked += group->walks ? group->prompt_blocks : 0;
        for (const auto& response : group->responses) {
          (response.replays ? replayed : scored) += response.blocks;
          advanced += response.replays ? response.blocks - 1 : 0;
        }
      }
      EXPECT_EQ(count(TickKind::capture_block), prompt);
      EXPECT_EQ(count(TickKind::prompt_backward_block), walked);
      EXPECT_EQ(count(TickKind::score_block), scored);
      EXPECT_EQ(count(TickKind::replay_block), replayed);
      EXPECT_EQ(count(TickKind::advance_block), advanced);
      EXPECT_EQ(count(TickKind::update), 1);
      for (size_t i = 0; i < ticks.size(); ++i)
        EXPECT_EQ(std::count(ticks.begin(), ticks.end(), ticks[i]), 1)
            << testing::PrintToString(ticks[i]);
    }
  }
}

}  // namespace
}  // namespace longstraw
