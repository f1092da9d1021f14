// Kills with SIGKILL one rank, or all, at random times, and goes on by -r auto each time, until the
// run has finished: it must end as if nothing had happened (trial 25).
//   campaign_kills [KILLS [SEED]]
#include "longstraw/core/log.hpp"
#include "longstraw/io/dump_file.hpp"
#include "regression/live.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

namespace longstraw::program {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;

constexpr int ranks = 2;

class Campaign {
 public:
  Campaign(int kills, unsigned seed) : wanted_(kills), random_(seed) {
    place_.copy_model("hybrid_tied_bf16", "model");
    place_.write_deck("deck.ini", "model", golden_folder("hybrid_tied_bf16") + "/rollouts.jsonl",
                      "[optimizer]\nlr = 0.01\n[rollouts]\nepochs = 2\n[parallel]\n"
                      "block_tokens = 16\n[dump]\nevery_ticks = 1\n");
    place_.succeed(ranks, "run -i deck.ini -d whole dump.every_ticks=0");
    longest_ = place_.succeed(ranks, "run -i deck.ini -d dumped").seconds;
  }

  void run() {
    while (kills_ < wanted_ && !testing::Test::HasFailure()) {
      fs::remove_all(place_ / "out");
      int lives = 1;
      while (live() == Life::killed) ++lives;
      expect_the_end_of_the_whole();
      ++runs_;
      most_lives_ = std::max(most_lives_, lives);
    }
    log(Level::info,
        "{} kills ({} of all ranks) in {} runs of up to {} lives: {} before the first dump, "
        "{} within a dump, {} after the end",
        kills_, of_all_, runs_, most_lives_, before_, within_, late_);
  }

 private:
  enum class Life { killed, finished };

  // Starts the run, or goes on with it, and kills it unless there were enough of that.
  Life live() {
    const bool to_the_end = kills_ >= wanted_ || random_() % 6 == 0;
    Live program(place_, ranks, "run -i deck.ini -d out -r auto");
    if (!to_the_end) {
      // From when MPI has started on all ranks: killed before, they leave Open MPI 4.1's mpirun
      // waiting for good now and then.
      for (int rank = 0; rank < ranks; ++rank) program.wait_for_signals(rank);
      const auto most = static_cast<unsigned>(longest_ * 0.8e6);
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % most));
      const bool all = random_() % 2 == 0;
      const int one = static_cast<int>(random_() % ranks);
      for (int rank = 0; rank < ranks; ++rank)
        if (all || rank == one) program.send(rank, SIGKILL);
      of_all_ += all;
      ++kills_;
    }
    const Outcome outcome = program.finish();
    if (to_the_end) {
      EXPECT_EQ(outcome.status, 0) << outcome.all();
    }
    EXPECT_NE(outcome.status, 124) << "did not end\n" << outcome.all();
    if (outcome.status != 0 && !testing::Test::HasFailure()) {
      look_at_what_is_left();
      return Life::killed;
    }
    // The kill came too late, or before there was anybody to kill.
    late_ += !to_the_end;
    return Life::finished;
  }

  // What the link names is whole, whatever lies beside it.
  void look_at_what_is_left() {
    const std::string dumps = place_ / "out/dumps";
    if (!fs::is_symlink(dumps + "/latest")) {
      ++before_;
      return;
    }
    expect_whole(dumps + "/latest");
    for (const auto& entry : fs::directory_iterator(dumps))
      if (entry.path().extension() == ".tmp") {
        ++within_;
        return;
      }
  }

  void expect_whole(const std::string& file) const {
    try {
      const DumpFileReader dump(file);
      std::istringstream names(dump.attribute("segments"));
      for (std::string name; names >> name;) DumpFileReader(place_ / "out/dumps/" + name);
      for (const auto& path : dump.paths())
        if (!dump.is_reference(path)) {
          EXPECT_EQ(dump.computed_sum(path, 1, 0), dump.stored_sum(path)) << path;
        }
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }

  void expect_the_end_of_the_whole() const {
    EXPECT_THAT(differences(files_of(place_ / "whole/weights"), files_of(place_ / "out/weights")),
                IsEmpty());
    auto whole = history_of(place_ / "whole"), parts = history_of(place_ / "out");
    ASSERT_EQ(whole.size(), parts.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const char* key : {"seconds", "bytes_peak", "restarts"})
        whole[i].erase(key), parts[i].erase(key);
      EXPECT_EQ(whole[i], parts[i]);
    }
    for (const auto& entry : fs::directory_iterator(place_ / "out/dumps")) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
      if (entry.path().extension() == ".h5") expect_whole(entry.path().string());
    }
  }

  Workplace place_;
  int wanted_;
  std::mt19937 random_;
  double longest_ = 0;  // seconds that a run takes
  int kills_ = 0, of_all_ = 0, runs_ = 0, most_lives_ = 0, before_ = 0, within_ = 0, late_ = 0;
};

struct Options {
  int kills = 5;
  unsigned seed = 1;
};

class Kills : public testing::Test {
 public:
  explicit Kills(Options options) : options_(options) {}
  void TestBody() override { Campaign(options_.kills, options_.seed).run(); }

 private:
  Options options_;
};

}  // namespace
}  // namespace longstraw::program

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  longstraw::program::Options options;
  if (argc > 1) options.kills = std::atoi(argv[1]);
  if (argc > 2) options.seed = static_cast<unsigned>(std::atoi(argv[2]));
  testing::RegisterTest(
      "Campaign", "EndsAsIfNothingHadHappened", nullptr, nullptr, __FILE__, __LINE__,
      [=] { return std::make_unique<longstraw::program::Kills>(options).release(); });
  return RUN_ALL_TESTS();
}
