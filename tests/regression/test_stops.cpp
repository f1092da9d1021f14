// Stopping in time and going on: signals to one rank, the time limit, the file stop (trials 30 and
// 32); ranks that die or hang (33); a second job in the same folder.
#include "regression/live.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include <unistd.h>

namespace longstraw::program {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int finished = 0, failed = 1, refused = 2, stopped = 3;
// "Within seconds", on a busy machine.
constexpr double soon = 20;

class Stops : public testing::Test {
 protected:
  // Ticks are of milliseconds; a dump after each says in the output where the run is.
  Stops() {
    place.copy_model("hybrid_tied_bf16", "model");
    place.write_deck("deck.ini", "model", golden_folder("hybrid_tied_bf16") + "/rollouts.jsonl",
                     "[optimizer]\nlr = 0.01\n[rollouts]\nepochs = 2\n[parallel]\n"
                     "block_tokens = 16\n[dump]\nevery_ticks = 1\n");
  }
  static std::string arguments(const std::string& more = "") {
    return "run -i deck.ini -d out -r auto " + more;
  }
  /// The uninterrupted run.
  void run_whole(int ranks) { place.succeed(ranks, "run -i deck.ini -d whole dump.every_ticks=0"); }
  /// Goes on to the end and expects the results of the uninterrupted run, bit for bit.
  void expect_the_same_in_the_end(int ranks) {
    const Outcome outcome = place.succeed(ranks, arguments("dump.every_ticks=0"));
    EXPECT_THAT(outcome.out, HasSubstr("restart    from"));
    EXPECT_THAT(differences(files_of(place / "whole/weights"), files_of(place / "out/weights")),
                IsEmpty());
    auto whole = history_of(place / "whole"), parts = history_of(place / "out");
    ASSERT_EQ(whole.size(), parts.size());
    for (size_t i = 0; i < whole.size(); ++i)
      for (const char* key : {"step", "loss", "grad_norm"})
        EXPECT_EQ(whole[i][key], parts[i][key]) << key;
  }

  Workplace place;
};

// One of two that do not end by themselves.
const std::string long_run = "rollouts.epochs=5000 dump.every_ticks=0 ";

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (line.find(part) != std::string::npos) found.push_back(line);
  return found;
}

void expect_stopped(const Outcome& outcome, const std::string& reason) {
  EXPECT_EQ(outcome.status, stopped) << outcome.all();
  EXPECT_LT(outcome.seconds, soon);
  EXPECT_THAT(outcome.errors(), IsEmpty());
  const auto said = lines_with(outcome.out, "stopped  ");
  ASSERT_EQ(said.size(), 1u) << outcome.all();
  EXPECT_THAT(said[0], HasSubstr(reason));
}

struct When {
  std::string tick;  // empty: while it starts and loads
  int signal;
  std::string name;
};

TEST_F(Stops, SignalToOneRankAtAnyTimeIsADumpToGoOnFrom) {
  run_whole(2);
  int to = 0;
  for (const When& when : std::initializer_list<When>{{"", SIGTERM, "SIGTERM"},
                                                      {"capture_block", SIGINT, "SIGINT"},
                                                      {"replay_block", SIGUSR1, "SIGUSR1"},
                                                      {"prompt_backward", SIGUSR2, "SIGUSR2"},
                                                      {"update", SIGTERM, "SIGTERM"}}) {
    SCOPED_TRACE(when.tick);
    fs::remove_all(place / "out");
    to = 1 - to;
    Live live(place, 2, arguments());
    ASSERT_TRUE(when.tick.empty() ? live.wait_for_signals(to)
                                  : live.wait_for("before " + when.tick));
    live.send(to, when.signal);
    expect_stopped(live.finish(), str("{} on rank {}", when.name, to));
    EXPECT_TRUE(fs::exists(place / "out/dumps/latest"));
    expect_the_same_in_the_end(2);
  }
}

TEST_F(Stops, SignalToTheLauncherReachesTheRun) {
  Live live(place, 2, arguments(long_run));
  ASSERT_TRUE(live.wait_for("step 2/"));
  live.send_launcher(SIGUSR1);
  expect_stopped(live.finish(), "SIGUSR1 on rank 0");
}

// The first is not honoured, since the other rank does not come to the next tick.
TEST_F(Stops, SecondSignalEndsTheJobAtOnceAndLeavesTheLastDump) {
  run_whole(2);
  Live live(place, 2, arguments());
  ASSERT_TRUE(live.wait_for("before replay_block"));
  live.send(0, SIGSTOP);
  live.send(1, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  live.send(1, SIGINT);
  const Outcome outcome = live.finish();
  EXPECT_EQ(outcome.status, 128 + SIGINT) << outcome.all();
  EXPECT_LT(outcome.seconds, soon);
  EXPECT_THAT(lines_with(outcome.out, "stopped  "), IsEmpty());
  expect_the_same_in_the_end(2);
}

TEST_F(Stops, TimeLimitCountsFromTheStart) {
  const auto start = std::chrono::steady_clock::now();
  Live live(place, 2, arguments(long_run + "-t 00:00:08"));
  expect_stopped(live.finish(), "time limit 00:00:08 in ");
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_LT(taken.count(), 8.5);
  EXPECT_TRUE(fs::exists(place / "out/dumps/latest"));
  place.succeed(2, arguments(long_run + "-n"));
}

// The job began 100 s before the program did, or is about to end.
TEST_F(Stops, TimeLimitCountsFromTheJobsStartWhereThereIsOne) {
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  Live slow(place, 2, arguments("-t 00:01:35"), str("SLURM_JOB_START_TIME={}", now - 100));
  expect_stopped(slow.finish(), "time limit 00:01:35: over for ");
  Live ends(place, 2, arguments("-t 10:00:00"), str("SLURM_JOB_END_TIME={}", now + 2));
  expect_stopped(ends.finish(), "end of the Slurm job");
}

TEST_F(Stops, FileStopsARunAndNotTheNext) {
  run_whole(2);
  Live live(place, 2, arguments());
  ASSERT_TRUE(live.wait_for("before capture_block"));
  write_file(place / "out/stop", "");
  expect_stopped(live.finish(), "file " + place / "out/stop");
  EXPECT_TRUE(fs::exists(place / "out/stop"));
  expect_the_same_in_the_end(2);
  EXPECT_FALSE(fs::exists(place / "out/stop"));
}

TEST_F(Stops, WithoutADumpAtExitItFailsUnlessThereIsAnEarlierOne) {
  Live without(place, 2, arguments(long_run + "dump.at_exit=false"));
  ASSERT_TRUE(without.wait_for("step 2/"));
  without.send(1, SIGTERM);
  const Outcome outcome = without.finish();
  EXPECT_EQ(outcome.status, failed) << outcome.all();
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.all();
  for (const char* part : {"SIGTERM", "without a dump", "dump.at_exit"})
    EXPECT_THAT(outcome.errors()[0], HasSubstr(part));
  Live with(place, 2, arguments("dump.at_exit=false"));
  ASSERT_TRUE(with.wait_for("before replay_block"));
  with.send(1, SIGTERM);
  expect_stopped(with.finish(), "SIGTERM on rank 1");
}

TEST_F(Stops, StoppedAgainBeforeItsFirstTickARunLosesNothing) {
  run_whole(2);
  for (int i = 0; i < 2; ++i) {
    Live live(place, 2, arguments("-t 00:00:01"));
    expect_stopped(live.finish(), "time limit");
  }
  expect_the_same_in_the_end(2);
}

TEST_F(Stops, DeadRankEndsTheJobAndIsNamed) {
  run_whole(3);
  for (const char* tick : {"capture_block", "replay_block"}) {
    fs::remove_all(place / "out");
    Live live(place, 3, arguments());
    ASSERT_TRUE(live.wait_for(str("before {}", tick)));
    live.send(1, SIGKILL);
    const Outcome outcome = live.finish();
    EXPECT_EQ(outcome.status, 128 + SIGKILL) << outcome.all();
    EXPECT_LT(outcome.seconds, soon);
    EXPECT_THAT(outcome.err, HasSubstr("process rank 1 "));
    EXPECT_THAT(outcome.err, HasSubstr("signal 9"));
    expect_the_same_in_the_end(3);
  }
}

TEST_F(Stops, HungRankIsFoundByTheWatchdog) {
  Live live(place, 3, arguments(long_run + "run.watchdog_seconds=2"));
  ASSERT_TRUE(live.wait_for("step 1/"));
  live.send(1, SIGSTOP);
  const Outcome outcome = live.finish();
  EXPECT_EQ(outcome.status, failed) << outcome.all();
  EXPECT_LT(outcome.seconds, soon);
  ASSERT_EQ(outcome.errors().size(), 1u) << outcome.all();
  EXPECT_THAT(outcome.errors()[0], HasSubstr("run.watchdog_seconds = 2"));
  // One of the two may have come further than the other.
  EXPECT_THAT(outcome.all(), AnyOf(HasSubstr("ranks 0, 2: step "),
                                   AllOf(HasSubstr("rank 0: step "), HasSubstr("rank 2: step "))));
  EXPECT_THAT(outcome.all(), HasSubstr("rank 1: no sign"));
  EXPECT_THAT(outcome.all(), HasSubstr("likely hung: rank 1"));
  for (const char* rank : {"rank-0", "rank-2"})
    EXPECT_THAT(read_file(place / "out/watchdog/" + rank), HasSubstr("/10000, "));
}

TEST_F(Stops, SecondJobInTheFolderIsRefusedAndTheFirstGoesOn) {
  Live live(place, 2, arguments(long_run));
  ASSERT_TRUE(live.wait_for("step 1/"));
  for (const char* check : {"", "-n"}) {
    const Outcome second = place.run(2, arguments(long_run + check));
    EXPECT_EQ(second.status, refused) << second.all();
    ASSERT_EQ(second.errors().size(), 1u) << second.all();
    EXPECT_THAT(second.errors()[0], HasSubstr("another job"));
    EXPECT_THAT(second.errors()[0], HasSubstr(str("process {}", live.process(0))));
  }
  live.send(0, SIGTERM);
  expect_stopped(live.finish(), "SIGTERM on rank 0");
  EXPECT_FALSE(fs::exists(place / "out/.lock"));
}

// Trial 52. A file system without locks, and HDF5 told to insist on them. (A folder without
// permission is in the tests of the run folder, as root may write anywhere.)
TEST_F(Stops, FolderWhereHdf5CannotLockIsRefused) {
  // In a build with sanitizers, theirs would want to come first.
  const std::string without =
      "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=" NO_LOCKS;
  expect_refused(place, "run -i deck.ini -d out", refused,
                 {"out", "HDF5", "HDF5_USE_FILE_LOCKING is TRUE", "FALSE", "-d"},
                 without + " HDF5_USE_FILE_LOCKING=TRUE");
  const Outcome outcome =
      place.run(2, "run -i deck.ini -d out", without + " HDF5_USE_FILE_LOCKING=FALSE");
  EXPECT_EQ(outcome.status, finished) << outcome.all();
}

TEST_F(Stops, TimeLimitThatIsNoneIsRefused) {
  for (const char* text : {"soon", "0", "-5", "1:2:3:4"})
    expect_refused(place, str("run -i deck.ini -d out -t \"{}\"", text), refused,
                   {"-t", "HH:MM:SS", text});
}

}  // namespace
}  // namespace longstraw::program
