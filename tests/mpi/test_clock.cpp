#include "longstraw/sim/clock.hpp"

#include "longstraw/comm/watchdog.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::TemporaryFolder;

TEST(Clock, SignalOfOneRankStopsAllOfThem) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2})
    for (int who = 0; who < grid.size(); ++who) {
      const Signals signals;
      Clock clock(grid, signals, folder.path(), 0);
      EXPECT_FALSE(clock.verdict(1, 0));
      if (grid.rank() == who) ::raise(signal);
      const auto reason = clock.verdict(1, 0);
      ASSERT_TRUE(reason);
      EXPECT_EQ(*reason, str("{} on rank {}", Signals::name(signal), who));
    }
}

TEST(Clock, NamesTheLowestRankWithTheWeightiestReason) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const Signals signals;
  Clock clock(grid, signals, folder.path(), 0);
  folder.prepare([&] { support::put(folder / "stop", ""); });
  EXPECT_EQ(*clock.verdict(1, 0), "file " + folder / "stop");
  if (grid.rank() > 0 || grid.size() == 1) ::raise(SIGUSR1);
  EXPECT_EQ(*clock.verdict(1, 0), str("SIGUSR1 on rank {}", grid.size() == 1 ? 0 : 1));
  grid.barrier();
}

TEST(Clock, StopFileOfAnEarlierRunIsRemovedAndALaterOneStays) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const Signals signals;
  folder.prepare([&] { support::put(folder / "stop", ""); });
  Clock clock(grid, signals, folder.path(), 0);
  grid.barrier();
  EXPECT_FALSE(fs::exists(folder / "stop"));
  EXPECT_FALSE(clock.verdict(1, 0));
  folder.prepare([&] { support::put(folder / "stop", ""); });
  EXPECT_TRUE(clock.verdict(1, 0));
  EXPECT_TRUE(fs::exists(folder / "stop"));
  grid.barrier();
}

TEST(Clock, TimeLimitOfRankZeroCounts) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const Signals signals;
  Clock clock(grid, signals, folder.path(), 3600);
  EXPECT_FALSE(clock.verdict(1, 10));
  const auto reason = clock.verdict(1, 3600);
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, testing::HasSubstr("time limit 01:00:00 in 35"));
  clock.did(1, 100);
  EXPECT_FALSE(clock.verdict(1, 0));
  EXPECT_TRUE(clock.verdict(50, 0));
}

// Ends as by a signal that nobody catches; in a process of its own.
int status_of(const std::function<void()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    act();
    ::kill(::getpid(), SIGSTOP);
  }
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  if (WIFSTOPPED(status)) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return 0;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : -1;
}

TEST(Signals, SecondOneEndsTheProcessUnlessItIsTheSameRequest) {
  if (Grid::world().size() > 1) return;
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(600)); };
  EXPECT_EQ(status_of([] {
              const Signals signals;
              ::raise(SIGUSR1);
              ::raise(SIGTERM);
            }),
            0);
  EXPECT_EQ(status_of([&] {
              const Signals signals;
              ::raise(SIGUSR1);
              wait();
              ::raise(SIGTERM);
            }),
            128 + SIGTERM);
  EXPECT_EQ(status_of([&] {
              { const Signals signals; }
              ::raise(SIGUSR2);
            }),
            128 + SIGUSR2);
}

TEST(Watchdog, LeavesALongTickWithCollectivesAlone) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const Watchdog watchdog(grid, folder.path(), 0.5);
  grid.activity().enter("a long tick");
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    grid.barrier();
  }
  EXPECT_FALSE(fs::exists(folder / "watchdog"));
  grid.barrier();
}

// The first rank works on by itself, saying so, while the others wait for it.
TEST(Watchdog, LeavesRanksAloneThatWaitForOneThatGetsOn) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const Watchdog watchdog(grid, folder.path(), 0.5);
  if (grid.rank() == 0)
    for (int i = 0; i < 40; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      grid.activity().beat();
    }
  grid.barrier();
}

TEST(Activity, CountsCollectivesAndKnowsWhereItIs) {
  Activity activity;
  EXPECT_EQ(activity.moment().begun, 0);
  activity.enter("load");
  {
    const Activity::Collective here(activity, "sum");
    EXPECT_EQ(activity.moment().collective, "sum");
    EXPECT_EQ(activity.moment().begun, 1);
    EXPECT_EQ(activity.moment().phase, "load");
  }
  EXPECT_EQ(activity.moment().collective, "");
  const auto before = activity.moment().progress;
  activity.beat();
  EXPECT_EQ(activity.moment().progress, before + 1);
  const Grid grid = Grid::world();
  const auto begun = grid.activity().moment().begun;
  grid.barrier();
  grid.sum(1.0);
  EXPECT_EQ(grid.activity().moment().begun, begun + 2);
}

}  // namespace
}  // namespace longstraw
