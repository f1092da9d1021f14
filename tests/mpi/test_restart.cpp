// A run that is restarted from a dump against the run that was not interrupted: the same bits on
// the same number of ranks, within rounding on others, from every tick.
#include "longstraw/core/log.hpp"
#include "longstraw/io/dump_file.hpp"
#include "longstraw/sim/run.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

namespace longstraw {
namespace {

using Json = nlohmann::json;
using support::get;
using support::put;
using support::TemporaryFolder;

constexpr const char* data = LONGSTRAW_TEST_DATA;
constexpr int writers = 2;  // ranks of the run that writes the dumps

// The first `ranks` ranks of the world.
class Part {
 public:
  explicit Part(int ranks) {
    MPI_Comm_split(MPI_COMM_WORLD, Grid::world().rank() < ranks ? 0 : MPI_UNDEFINED, 0, &comm_);
    if (comm_ != MPI_COMM_NULL) grid_.emplace(comm_);
  }
  ~Part() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  bool member() const { return grid_.has_value(); }
  const Grid& grid() const { return *grid_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::optional<Grid> grid_;
};

Json response(const std::string& id, int tokens, double reward, int seed) {
  Json ids = Json::array();
  for (int i = 0; i < tokens; ++i) ids.push_back((i * 7 + seed * 13 + i * i) % 60);
  return {{"id", id}, {"ids", ids}, {"reward", reward}};
}

// A long prompt whose responses are of one block, of several, and without advantage (only scored),
// and a prompt of one token.
std::string rollouts() {
  Json prompt = Json::array();
  for (int i = 0; i < 41; ++i) prompt.push_back((i * 11 + i * i) % 60);
  const Json long_group = {{"id", "long"},
                           {"prompt", prompt},
                           {"responses",
                            {response("l0", 3, 1, 1), response("l1", 20, 0, 2),
                             response("l2", 10, 0.5, 3), response("l3", 6, 0.5, 4)}}};
  const Json short_group = {{"id", "short"},
                            {"prompt", {5}},
                            {"responses", {response("s0", 9, 0, 5), response("s1", 2, 2, 6)}}};
  return long_group.dump() + "\n" + short_group.dump() + "\n";
}

std::string deck(const TemporaryFolder& folder, GradientMode mode, const std::string& dumps) {
  return str(
      "[model]\ncheckpoint = {}/golden/hybrid/model\nprecision = float64\n"
      "[rollouts]\nfile = {}\ngroups_per_step = 2\nepochs = 2\n"
      "[gradient]\nmode = {}\nprompt_checkpoint_every = 2\n[optimizer]\nlr = 0.01\n"
      "[parallel]\nblock_tokens = 8\npage_tokens = 5\n"
      "[output]\ngradients = true\n[dump]\nevery_seconds = 0\n{}",
      data, folder / "rollouts.jsonl", name_of(mode), dumps);
}

RunResult run_in(const std::string& folder, const std::string& deck_text,
                 const RestartRequest& restart, const Grid& grid) {
  Deck deck(deck_text, "deck.ini");
  const Settings settings = read_settings(deck);
  Problem problem = open_problem(settings, grid);
  problem.deck = deck.completed();
  const Signals signals;
  return run(problem, {.folder = folder, .restart = restart}, signals, grid);
}

// Everything that a finished run leaves: its last dump, which has weights, moments and history, and
// the gradients.
struct Left {
  std::map<std::string, std::vector<double>> arrays;
  std::vector<Json> history;
};

Left left_by(const std::string& folder) {
  Left left;
  const DumpFileReader dump(
      (std::filesystem::path(folder) / "dumps" /
       std::filesystem::read_symlink(std::filesystem::path(folder) / "dumps" / "latest"))
          .string());
  for (const auto& path : dump.paths())
    if (path.starts_with("weights/") || path.starts_with("optimizer/"))
      left.arrays[path] = h5::read_all(h5::open_file(dump.path()), path);
  for (int step = 0; step < 2; ++step) {
    const std::string name = str("gradient-{}.h5", step);
    const auto file = std::filesystem::path(folder) / name;
    if (!std::filesystem::exists(file)) continue;
    const h5::File gradients = h5::open_file(file.string());
    for (const auto& parameter : h5::names(gradients, "/"))
      left.arrays[name + "/" + parameter] = h5::read_all(gradients, parameter);
  }
  std::istringstream lines(get(folder + "/history.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json entry = Json::parse(line);
    for (const char* key : {"seconds", "bytes_peak", "restarts"}) entry.erase(key);
    left.history.push_back(entry);
  }
  return left;
}

// Largest |a - b| relative to the largest |b| of an array.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return most == 0 ? 0 : most / largest;
}

class Restarts : public testing::TestWithParam<GradientMode> {
 protected:
  Restarts() {
    log_speaks(false);
    folder_.prepare([&] { put(folder_ / "rollouts.jsonl", rollouts()); });
    const Part part(writers);
    if (part.member())
      run_in(folder_ / "whole", deck(folder_, GetParam(), "every_ticks = 1\nkeep = 10000\n"), {},
             part.grid());
    Grid::world().barrier();
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "whole/dumps"))
      if (entry.path().filename().string().starts_with("dump-")) dumps_.insert(entry.path());
    whole_ = left_by(folder_ / "whole");
  }
  ~Restarts() override { log_speaks(true); }

  void expect_same_end(const std::string& dump, int ranks) {
    SCOPED_TRACE(str("{} on {} rank(s)", dump, ranks));
    const std::string folder = folder_ / "again";
    folder_.prepare([&] { std::filesystem::remove_all(folder); });
    {
      const Part part(ranks);
      RunResult result = RunResult::finished;
      if (part.member())
        result = run_in(folder, deck(folder_, GetParam(), ""), {Restart::file, dump}, part.grid());
      EXPECT_EQ(result, RunResult::finished);
    }
    Grid::world().barrier();
    if (Grid::world().rank() != 0) return;
    const Left again = left_by(folder);
    ASSERT_EQ(again.history.size(), whole_.history.size());
    // The moments are means of gradients and of their squares: as near as those are.
    const double tolerance = ranks == writers ? 0 : 1e-10;
    for (const auto& [name, values] : again.arrays)
      EXPECT_LE(difference(values, whole_.arrays.at(name)), tolerance) << name;
    if (ranks != writers) return;
    EXPECT_EQ(again.history, whole_.history);
  }

  TemporaryFolder folder_;
  std::set<std::string> dumps_;
  Left whole_;
};

TEST_P(Restarts, GoOnFromATickOfAnyKind) {
  std::map<int64_t, int> kinds;
  int number = 0;
  // LONGSTRAW_EVERY_TICK: from all of them, not from one in eight and the first of each kind.
  const bool all = std::getenv("LONGSTRAW_EVERY_TICK") != nullptr;
  for (const auto& dump : dumps_) {
    const int64_t kind = DumpFileReader(dump).number("cursor/kind");
    if (kinds[kind]++ > 0 && ++number % 8 != 0 && !all) continue;
    for (const int ranks : {writers, 1, 3})
      if (ranks <= Grid::world().size()) expect_same_end(dump, ranks);
  }
  const size_t expected = GetParam() == GradientMode::exact ? 6 : 5;
  EXPECT_EQ(kinds.size(), expected) << "kinds of ticks";
}

INSTANTIATE_TEST_SUITE_P(Modes, Restarts,
                         testing::Values(GradientMode::exact, GradientMode::frozen));

}  // namespace
}  // namespace longstraw
