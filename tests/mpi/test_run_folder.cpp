#include "longstraw/io/run_folder.hpp"

#include "longstraw/io/gradients.hpp"
#include "longstraw/io/history.hpp"
#include "reference/golden.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include <sys/stat.h>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::expect_parts;
using support::get;
using support::refusal_of;
using support::TemporaryFolder;

TEST(RunFolder, HoldsTheDeckAndNamesItsFiles) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const RunFolder run(folder / "a/b/run/", RunFolder::Earlier::refused, grid);
  run.begin("[a]\nb = 1\n", grid);
  EXPECT_EQ(run.path(), folder / "a/b/run");
  EXPECT_THAT(get(run.path() + "/deck.ini"), testing::EndsWith(" filled in.\n[a]\nb = 1\n"));
  EXPECT_EQ(run.gradients(12), run.path() + "/gradient-12.h5");
  EXPECT_EQ(run.weights(), run.path() + "/weights");
  EXPECT_EQ(run.log(), run.path() + "/log");
  EXPECT_EQ(std::distance(fs::directory_iterator(run.path()), {}), 2);  // with the lock
  grid.barrier();  // which goes with the first rank that leaves
}

TEST(RunFolder, WithAnotherRunsHistoryIsRefused) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const std::string path = folder / "run";
  { const RunFolder first(path, RunFolder::Earlier::refused, grid); }
  // never got as far as a step
  { const RunFolder again(path, RunFolder::Earlier::refused, grid); }
  folder.prepare([&] { support::put(path + "/history.jsonl", "{}\n"); });
  const auto refused =
      refusal_of([&] { RunFolder::check(path, RunFolder::Earlier::refused, grid); });
  expect_parts(refused.message, {path, "another run", "-d"});
  EXPECT_TRUE(refused.everywhere);
  EXPECT_NE(refusal_of([&] { RunFolder(path, RunFolder::Earlier::refused, grid); }).message, "");
}

TEST(RunFolder, WithADeckOfTheUsersIsRefused) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  folder.prepare([&] { support::put(folder / "deck.ini", "# mine\n[a]\nb = 1\n"); });
  const auto refused =
      refusal_of([&] { RunFolder::check(folder.path(), RunFolder::Earlier::refused, grid); });
  EXPECT_EQ(refused.status, 2);
  expect_parts(refused.message, {folder.path(), "deck.ini of yours", "-d"});
  EXPECT_NE(
      refusal_of([&] { RunFolder(folder.path(), RunFolder::Earlier::refused, grid); }).message, "");
  EXPECT_EQ(get(folder / "deck.ini"), "# mine\n[a]\nb = 1\n");
}

TEST(RunFolder, CheckLeavesNothingBehind) {
  const TemporaryFolder folder;
  RunFolder::check(folder / "a/b", RunFolder::Earlier::refused, Grid::world());
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// Trial 24, before any work.
TEST(RunFolder, OnADiskWithoutRoomIsRefused) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  RunFolder::check_room(folder / "a/b", 1000, grid);
  const int64_t most = std::numeric_limits<int64_t>::max();
  const auto refused = refusal_of([&] { RunFolder::check_room(folder / "a/b", most, grid); });
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(refused.everywhere);
  expect_parts(refused.message, {folder / "a/b", str("take {} bytes", most), "free", "-d"});
}

// Trial 52. Root may write anywhere but where the system has no files to make, such as /proc.
TEST(RunFolder, WithoutPermissionIsRefused) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  expect_parts(
      refusal_of([&] { RunFolder::check("/proc/run", RunFolder::Earlier::refused, grid); }).message,
      {"cannot write", "/proc", "-d"});
  folder.prepare([&] { support::put(folder / "file", ""); });
  expect_parts(refusal_of([&] {
                 RunFolder::check(folder / "file/run", RunFolder::Earlier::refused, grid);
               }).message,
               {folder / "file", "no folder"});
  if (::geteuid() == 0) return;
  folder.prepare([&] { ::chmod(folder.path().c_str(), 0555); });
  expect_parts(refusal_of([&] {
                 RunFolder::check(folder / "run", RunFolder::Earlier::refused, grid);
               }).message,
               {"cannot write", folder.path(), "-d"});
  folder.prepare([&] { ::chmod(folder.path().c_str(), 0755); });
}

TEST(History, AppendsOneLineAStep) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  const std::string path = folder / "history.jsonl";
  {
    std::string none;
    History history(path, none, grid);
    history.append({{"step", 1}, {"loss", 0.1}, {"bytes_peak", {{"z", 5}, {"a", 6}}}});
    grid.barrier();
    EXPECT_EQ(get(path), "{\"step\":1,\"loss\":0.1,\"bytes_peak\":{\"z\":5,\"a\":6}}\n");
    grid.barrier();
    history.append({{"step", 2}, {"loss", NAN}});
  }
  {
    std::string lines = "{\"step\":2,\"loss\":null}\n";  // after a restart
    History history(path, lines, grid);
    history.append({{"step", 3}});
    if (grid.rank() == 0) {
      EXPECT_EQ(lines, "{\"step\":2,\"loss\":null}\n{\"step\":3}\n");
    }
  }
  grid.barrier();
  EXPECT_EQ(get(path), "{\"step\":2,\"loss\":null}\n{\"step\":3}\n");
  std::string none;
  expect_parts(refusal_of([&] { History(folder / "no/history", none, grid); }).message,
               {folder / "no/history"});
}

TEST(Gradients, OneDatasetAParameterOfItsShape) {
  const TemporaryFolder folder;
  const Grid grid = Grid::world();
  // The second is written in several parts.
  const std::vector<NamedShape> parameters = {{"model.layers.0.norm.weight", {5}},
                                              {"lm_head.weight", {1500, 3000}},
                                              {"conv1d.weight", {2, 1, 4}},
                                              {"scalar", {}},
                                              {"empty", {0, 3}}};
  const std::string path = folder / "gradient-7.h5";
  for (const DType type : {DType::float32, DType::float64}) {
    Ledger ledger;
    write_gradients({.path = path, .mode = "frozen", .step = 7}, parameters, grid, ledger, type,
                    [&](const std::string& name, Range part, const Tensor& values) {
                      dispatch(type, [&]<class T>(T) {
                        for (int64_t i = part.begin; i < part.end; ++i)
                          values.data<T>()[i - part.begin] =
                              static_cast<T>(0.25 * static_cast<double>(i) + name.size());
                      });
                      return true;
                    });
    EXPECT_EQ(ledger.total().current, 0);
    grid.barrier();
    const auto file = h5::open_file(path);
    EXPECT_EQ(h5::names(file, "/").size(), parameters.size());
    for (const auto& parameter : parameters) {
      EXPECT_EQ(h5::extents(file, parameter.name), parameter.shape);
      const auto values = h5::read_all(file, parameter.name);
      for (size_t i = 0; i < values.size(); ++i) {
        const double x = 0.25 * static_cast<double>(i) + parameter.name.size();
        ASSERT_EQ(values[i], type == DType::float32 ? static_cast<float>(x) : x);
      }
    }
    EXPECT_EQ(h5::read_attribute(file, "gradient_mode"), "frozen");
    EXPECT_EQ(h5::read_integer_attribute(file, "step"), 7);
    grid.barrier();
  }
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

TEST(Gradients, AFileThatCannotBeMadeIsNamedOnAllRanks) {
  const TemporaryFolder folder;
  Ledger ledger;
  const auto refused = refusal_of([&] {
    write_gradients({.path = folder / "no/g.h5", .mode = "frozen", .step = 1}, {}, Grid::world(),
                    ledger, DType::float32, [](const auto&, Range, const Tensor&) { return true; });
  });
  expect_parts(refused.message, {folder / "no/g.h5", "HDF5"});
  EXPECT_TRUE(refused.everywhere);
}

TEST(Golden, HoldsItsCases) {
  const reference::Golden golden("hybrid");
  const auto loss = golden.array("objectives/plain/loss");
  EXPECT_TRUE(loss.shape.empty());
  EXPECT_EQ(loss.values.size(), 1u);
  EXPECT_EQ(golden.array("hidden/0").shape, (std::vector<int64_t>{156, 32}));
  EXPECT_TRUE(golden.has("objectives/plain/frozen/grad/lm_head.weight"));
  EXPECT_FALSE(golden.has("objectives/none/loss"));
  EXPECT_EQ(golden.objective("full").at("temperature"), 0.8);
  EXPECT_EQ(golden.names("objectives/plain/responses"),
            (std::vector<std::string>{"g0r0", "g0r1", "g0r2"}));
}

}  // namespace
}  // namespace longstraw
