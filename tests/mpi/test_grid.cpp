#include "longstraw/comm/grid.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace longstraw {
namespace {

TEST(Grid, AllToAllWithPartsOfAnySize) {
  const Grid grid = Grid::world();
  const int n = grid.size(), me = grid.rank();
  std::vector<int64_t> send(n), receive(n);
  for (int r = 0; r < n; ++r) {
    send[r] = ((me + 2 * r) % 3) * 8;
    receive[r] = ((r + 2 * me) % 3) * 8;
  }
  std::vector<double> out, in(std::accumulate(receive.begin(), receive.end(), int64_t{0}) / 8);
  for (int r = 0; r < n; ++r)
    for (int64_t i = 0; i < send[r] / 8; ++i) out.push_back(100 * me + 10 * r + i);
  grid.all_to_all(in.data(), receive, out.data(), send);
  size_t at = 0;
  for (int r = 0; r < n; ++r)
    for (int64_t i = 0; i < receive[r] / 8; ++i) EXPECT_EQ(in[at++], 100 * r + 10 * me + i);
}

TEST(Grid, GatheredRowsComeInTheOrderOfRanks) {
  const Grid grid = Grid::world();
  std::vector<int64_t> rows(grid.size());
  for (int r = 0; r < grid.size(); ++r) rows[r] = part_of(5, grid.size(), r).size();
  const Range mine = grid.mine(5);
  std::vector<float> from(mine.size() * 2), to(10);
  for (int64_t i = 0; i < mine.size() * 2; ++i) from[i] = static_cast<float>(mine.begin * 2 + i);
  grid.all_gather_rows(Tensor(to.data(), DType::float32, {5, 2}),
                       Tensor(from.data(), DType::float32, {mine.size(), 2}), rows);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(to[i], static_cast<float>(i));
}

TEST(Grid, SumIsTheSameOnEveryRank) {
  const Grid grid = Grid::world();
  const double sum = grid.sum(0.1 * (grid.rank() + 1));
  for (double other : grid.gather(sum)) EXPECT_EQ(other, sum);
  EXPECT_NEAR(sum, 0.05 * grid.size() * (grid.size() + 1), 1e-12);
}

TEST(Grid, WholeNumbersAreSummedExactly) {
  const Grid grid = Grid::world();
  std::vector<uint64_t> values = {(uint64_t{1} << 60) + 1, ~uint64_t{0}, 0};
  grid.sum(values);
  const auto ranks = static_cast<uint64_t>(grid.size());
  EXPECT_EQ(values, (std::vector<uint64_t>{(ranks << 60) + ranks, ~uint64_t{0} - (ranks - 1), 0}));
}

TEST(Grid, AnErrorOfOneRankIsThrownOnAll) {
  const Grid grid = Grid::world();
  const int last = grid.size() - 1;
  try {
    agree(grid, [&] { require(grid.rank() != last, "file is gone", 2); });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "file is gone");
    EXPECT_EQ(error.status(), 2);
    EXPECT_TRUE(error.everywhere());
  }
}

}  // namespace
}  // namespace longstraw
