// Dumps of one folder that share what grew between them.
#include "longstraw/core/field.hpp"
#include "longstraw/io/dump_folder.hpp"
#include "support/temporary_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::TemporaryFolder;

constexpr int64_t most_rows = 40, width = 3;

// Rows [0, `rows`) of one array, of which every rank holds a part, in a `life`.
void list_rows(DumpFields& fields, const Grid& grid, std::vector<double>& values, int64_t rows) {
  values.resize(most_rows * width);
  const Range mine = part_of(rows, grid.size(), grid.rank());
  const Tensor all(values.data(), DType::float64, {most_rows, width});
  const DumpPiece piece{.first = mine.begin * width, .values = all.rows(mine.begin, mine.end)};
  int64_t kind = 0;
  fields.number("cursor/kind", kind, {}, "of a tick");
  fields.grown({.path = "prompt/rows",
                .type = DType::float64,
                .extents = {rows, width},
                .meaning = "rows of a prompt"},
               std::span(&piece, 1), "prompt-0-0");
}

std::vector<double> values_from(double first) {
  std::vector<double> values(most_rows * width);
  std::iota(values.begin(), values.end(), first);
  return values;
}

class DumpFolders : public testing::Test {
 protected:
  // The dump after `ticks` ticks, in which four rows a tick have grown.
  void write(DumpFolder& dumps, int64_t ticks, std::vector<double> values) {
    dumps.write(ticks, 9, [&](DumpFields& fields) { list_rows(fields, grid_, values, 4 * ticks); });
  }
  std::string path_of(int64_t ticks) const {
    return str("{}/dump-{:08}.h5", folder_.path(), ticks);
  }
  // What this rank reads back of its rows is `expected`.
  void expect_rows(int64_t ticks, const std::vector<double>& expected) {
    DumpReader dump(path_of(ticks), grid_);
    std::vector<double> values;
    list_rows(dump, grid_, values, 4 * ticks);
    const Range mine = part_of(4 * ticks, grid_.size(), grid_.rank());
    for (int64_t i = mine.begin * width; i < mine.end * width; ++i)
      EXPECT_EQ(values[i], expected[i]) << "dump " << ticks << ", element " << i;
  }

  TemporaryFolder folder_;
  Grid grid_ = Grid::world();
};

TEST_F(DumpFolders, GoingBackLeavesLaterDumpsWhole) {
  const auto first = values_from(0), second = values_from(1000);
  DumpFolder dumps(folder_.path(), grid_);
  for (const int64_t ticks : {2, 4, 6, 8}) write(dumps, ticks, first);
  DumpFolder again(folder_.path(), grid_);
  auto mixed = second;
  std::copy_n(first.begin(), 4 * 2 * width, mixed.begin());
  {
    DumpReader dump(path_of(2), grid_);
    std::vector<double> values;
    list_rows(dump, grid_, values, 4 * 2);
    EXPECT_TRUE(again.go_on_from(dump));
    EXPECT_FALSE(DumpFolder(folder_ / "other", grid_).go_on_from(dump));
  }
  grid_.barrier();
  // Killed now, the run goes on from there again.
  EXPECT_EQ(again.latest(), path_of(2));
  // At one moment that the first run had a dump of, and at one that it had not.
  write(again, 5, mixed);
  write(again, 6, mixed);
  expect_rows(2, first), expect_rows(4, first), expect_rows(8, first);
  expect_rows(5, mixed), expect_rows(6, mixed);
}

}  // namespace
}  // namespace longstraw
