// Queries and columns on their way between ranks: everything arrives where it should, and comes
// back added up.
#include "longstraw/model/exchange.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace longstraw {
namespace {

class Exchange : public testing::Test {
 protected:
  Block block_of(int64_t tokens, int64_t start = 100) {
    return make_block(grid_, {start, start + tokens},
                      [](Range slice) { return std::vector<int32_t>(slice.size(), 0); });
  }
  // [rows, width], value(row, column) each
  template <class Value>
  Field made(int64_t rows, int64_t width, const Value& value) {
    Field field(ledger_, "test", DType::float64, {rows, width});
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < width; ++j) field.tensor().row<double>(i)[j] = value(i, j);
    return field;
  }
  template <class Value>
  void expect(const Tensor& rows, const Value& value) {
    for (int64_t i = 0; i < rows.extent(0); ++i)
      for (int64_t j = 0; j < rows.extent(1); ++j)
        EXPECT_EQ(rows.row<double>(i)[j], value(i, j)) << i << " " << j;
  }

  Grid grid_ = Grid::world();
  Ledger ledger_;
  Stream stream_;
  Parameters none_{ledger_, DType::float64, {}};
  Context context_{grid_, ledger_, stream_, none_};
  // Fewer tokens than ranks, sizes that ranks do and do not divide.
  const std::vector<int64_t> tokens_ = {1, 2, 6, 31};
};

TEST_F(Exchange, PartsOfQueriesCoverEverySlice) {
  for (int64_t tokens : tokens_) {
    const Block block = block_of(tokens);
    for (int parts : {1, 2, 5}) {
      std::vector<int64_t> all;
      int64_t mine = 0;
      for (int i = 0; i < parts; ++i) {
        const QueryExchange exchange(context_, block, parts, i);
        EXPECT_EQ(exchange.mine().begin, mine);
        mine = exchange.mine().end;
        EXPECT_TRUE(std::is_sorted(exchange.positions().begin(), exchange.positions().end()));
        EXPECT_EQ(exchange.gathered(), std::ssize(exchange.positions()));
        all.insert(all.end(), exchange.positions().begin(), exchange.positions().end());
      }
      EXPECT_EQ(mine, block.mine.size());
      std::sort(all.begin(), all.end());
      std::vector<int64_t> expected(tokens);
      std::iota(expected.begin(), expected.end(), block.positions.begin);
      EXPECT_EQ(all, expected) << tokens << " in " << parts;
    }
  }
}

TEST_F(Exchange, QueriesReachAllRanksAndResultsComeBack) {
  for (int64_t tokens : tokens_) {
    const Block block = block_of(tokens);
    const Field rows = made(block.mine.size(), 3, [&](int64_t i, int64_t j) {
      return static_cast<double>(10 * (block.mine.begin + i) + j);
    });
    for (int i = 0; i < 2; ++i) {
      const QueryExchange exchange(context_, block, 2, i);
      const Field all =
          exchange.gather(rows.tensor().rows(exchange.mine().begin, exchange.mine().end));
      expect(all, [&](int64_t query, int64_t j) {
        return static_cast<double>(10 * exchange.positions()[query] + j);
      });
      // Rank r answers the query at position p with 1000 r + p.
      const Field answers = made(exchange.gathered(), 2, [&](int64_t query, int64_t) {
        return static_cast<double>(1000 * grid_.rank() + exchange.positions()[query]);
      });
      const Field back = exchange.give_back(answers);
      const int64_t own = exchange.mine().size();
      ASSERT_EQ(back.tensor().extent(0), grid_.size());
      expect(back.tensor().reshape({grid_.size() * own, 2}), [&](int64_t row, int64_t) {
        const int64_t position = block.mine.begin + exchange.mine().begin + row % own;
        return static_cast<double>(1000 * (row / own) + position);
      });
    }
  }
}

TEST_F(Exchange, PartsKeepGatheredQueriesBounded) {
  const Block block = block_of(60);
  for (int64_t most : {7, 30, 60, 1000}) {
    const int parts = QueryExchange::parts_for(block, most);
    for (int i = 0; i < parts; ++i) {
      const QueryExchange exchange(context_, block, parts, i);
      // One query a rank is the least, and slices are cut alike to one query.
      EXPECT_LE(exchange.gathered(), most + grid_.size());
    }
  }
  EXPECT_EQ(QueryExchange::parts_for(block, 60), 1);
  EXPECT_EQ(QueryExchange::parts_for(block_of(1), 1000), 1);
}

// Rank r needs column 0, which all do, and two columns of its own.
ColumnPlan plan_for(int ranks) {
  ColumnPlan plan;
  for (int r = 0; r < ranks; ++r) plan.push_back({{1 + 2 * r, 3 + 2 * r}, {0, 1}, {1, 1}});
  return plan;
}

TEST_F(Exchange, ColumnsReachTheirRanksInTheOrderOfTheirPlan) {
  const int64_t wide = 1 + 2 * grid_.size();
  for (int64_t tokens : tokens_) {
    const Block block = block_of(tokens, 0);
    const ColumnExchange exchange(context_, block, plan_for(grid_.size()));
    const Field rows = made(block.mine.size(), wide, [&](int64_t i, int64_t j) {
      return static_cast<double>(100 * (block.mine.begin + i) + j);
    });
    const Field columns = exchange.to_columns(rows);
    ASSERT_EQ(columns.tensor().extent(0), tokens);
    const int64_t own[] = {1 + 2 * grid_.rank(), 2 + 2 * grid_.rank(), 0};
    expect(columns, [&](int64_t i, int64_t j) { return static_cast<double>(100 * i + own[j]); });
  }
}

TEST_F(Exchange, ColumnsComeBackAddedUp) {
  const int64_t wide = 1 + 2 * grid_.size();
  for (int64_t tokens : tokens_) {
    const Block block = block_of(tokens, 0);
    const ColumnExchange exchange(context_, block, plan_for(grid_.size()));
    const Field columns = made(tokens, 3, [&](int64_t i, int64_t j) {
      return static_cast<double>(100 * i + 10 * j + grid_.rank());
    });
    const Field rows = made(block.mine.size(), wide, [](int64_t, int64_t) { return 0.5; });
    exchange.add_to_rows(rows, columns);
    const int64_t ranks = grid_.size();
    expect(rows, [&](int64_t i, int64_t j) {
      const auto base = static_cast<double>(100 * (block.mine.begin + i));
      if (j == 0)  // column 2 of every rank
        return 0.5 + static_cast<double>(ranks) * (base + 20) +
               static_cast<double>(ranks * (ranks - 1) / 2);
      const int64_t rank = (j - 1) / 2, column = (j - 1) % 2;
      return 0.5 + base + static_cast<double>(10 * column + rank);
    });
  }
}

}  // namespace
}  // namespace longstraw
