// Pages of retained state: exact sizes, runs, truncation, and the gradients that go with them.
#include "longstraw/model/pages.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace longstraw {
namespace {

constexpr int64_t width = 3;

// Rows [begin, begin + count) of a matrix whose row i is (10 i, 10 i + 1, 10 i + 2).
class Rows {
 public:
  Rows(int64_t begin, int64_t count) : values_(count * width) {
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < width; ++j)
        values_[i * width + j] = static_cast<double>(10 * (begin + i) + j);
    tensor_ = Tensor(values_.data(), DType::float64, {count, width});
  }
  operator const Tensor&() const { return tensor_; }

 private:
  std::vector<double> values_;
  Tensor tensor_;
};

void expect_rows(const Tensor& page, int64_t begin, int64_t count) {
  ASSERT_EQ(page.extent(0), count);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < width; ++j)
      EXPECT_EQ(page.row<double>(i)[j], static_cast<double>(10 * (begin + i) + j)) << i;
}

class Pages : public testing::Test {
 protected:
  int64_t bytes(const char* label) const {
    const auto found = ledger_.entries().find(label);
    return found == ledger_.entries().end() ? 0 : found->second.current;
  }
  std::vector<int64_t> capacities(const PagedRows& rows) const {
    std::vector<int64_t> all;
    for (int i = 0; i < rows.page_count(); ++i) all.push_back(rows.capacity(i));
    return all;
  }

  Ledger ledger_;
  PagedRows rows_{ledger_, "rows", DType::float64, 4, width};
};

TEST_F(Pages, AreOfExactlyTheRowsThatTheRunHas) {
  rows_.open(10);
  EXPECT_EQ(bytes("rows"), 0);
  for (int64_t begin : {0, 3, 6, 9}) rows_.append(Rows(begin, begin == 9 ? 1 : 3));
  EXPECT_EQ(capacities(rows_), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(bytes("rows"), 10 * width * 8);
  EXPECT_EQ(rows_.rows(), 10);
  expect_rows(rows_.page(0), 0, 4);
  expect_rows(rows_.page(1), 4, 4);
  expect_rows(rows_.page(2), 8, 2);
}

TEST_F(Pages, GrowWithTheRowsThatAreThere) {
  rows_.open(10);
  rows_.append(Rows(0, 5));
  EXPECT_EQ(capacities(rows_), (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(rows_.range(1), (Range{4, 5}));
  expect_rows(rows_.page(1), 4, 1);
}

TEST_F(Pages, RunStartsItsOwnPageAndIsDropped) {
  rows_.open(6);
  rows_.append(Rows(0, 6));
  for (int64_t run : {5, 1, 9}) {
    rows_.open(run);
    rows_.append(Rows(6, run));
    EXPECT_EQ(rows_.range(2).begin, 6);
    expect_rows(rows_.page(2), 6, std::min<int64_t>(run, 4));
    EXPECT_EQ(bytes("rows"), (6 + run) * width * 8);
    rows_.truncate(6);
    EXPECT_EQ(capacities(rows_), (std::vector<int64_t>{4, 2}));
    EXPECT_EQ(bytes("rows"), 6 * width * 8);
  }
  expect_rows(rows_.page(1), 4, 2);
}

TEST_F(Pages, TruncateInsideAPageKeepsThePage) {
  rows_.open(8);
  rows_.append(Rows(0, 8));
  rows_.truncate(5);
  EXPECT_EQ(rows_.rows(), 5);
  EXPECT_EQ(rows_.range(1), (Range{4, 5}));
  EXPECT_EQ(capacities(rows_), (std::vector<int64_t>{4, 4}));
  rows_.truncate(0);
  EXPECT_EQ(rows_.page_count(), 0);
  EXPECT_EQ(bytes("rows"), 0);
}

TEST_F(Pages, RankWithoutTokensHasNone) {
  rows_.open(0);
  rows_.append(Rows(0, 0));
  EXPECT_EQ(rows_.page_count(), 0);
  rows_.open(2);
  rows_.append(Rows(0, 2));
  EXPECT_EQ(capacities(rows_), (std::vector<int64_t>{2}));
}

TEST_F(Pages, GradientsCoverThePagesFromTheFirstOneOn) {
  rows_.open(6);
  rows_.append(Rows(0, 6));
  rows_.open(3);
  rows_.append(Rows(6, 3));
  PageGradients frozen(ledger_, "frozen", 2), exact(ledger_, "exact", 0);
  frozen.extend(rows_);
  exact.extend(rows_);
  EXPECT_EQ(bytes("frozen"), 3 * width * 8);
  EXPECT_EQ(bytes("exact"), 9 * width * 8);
  EXPECT_EQ(frozen.page(0, 4).order(), 0);
  EXPECT_EQ(frozen.page(1, 2).order(), 0);
  EXPECT_EQ(frozen.page(2, 3).extent(0), 3);
  for (int64_t i = 0; i < 3 * width; ++i) EXPECT_EQ(frozen.page(2, 3).data<double>()[i], 0);
  exact.extend(rows_);
  EXPECT_EQ(bytes("exact"), 9 * width * 8);
}

TEST_F(Pages, GradientsAreReadAcrossPages) {
  rows_.open(10);
  rows_.append(Rows(0, 10));
  PageGradients gradient(ledger_, "gradient", 0);
  gradient.extend(rows_);
  for (int i = 0; i < 3; ++i)
    copy(gradient.page(i, rows_.range(i).size()),
         Rows(rows_.range(i).begin, rows_.range(i).size()));
  for (const Range range : {Range{0, 10}, Range{3, 9}, Range{5, 6}, Range{4, 8}, Range{7, 7}}) {
    const Field to(ledger_, "to", DType::float64, {range.size(), width});
    gradient.read(to, rows_, range);
    expect_rows(to, range.begin, range.size());
  }
}

TEST_F(Pages, GradientsGoWithTheLastRowThatNeedsThem) {
  rows_.open(10);
  rows_.append(Rows(0, 10));
  PageGradients gradient(ledger_, "gradient", 0);
  gradient.extend(rows_);
  const auto held = [&](int64_t rows) {
    gradient.truncate(rows_, rows);
    return bytes("gradient") / (width * 8);
  };
  EXPECT_EQ(held(9), 10);
  EXPECT_EQ(held(8), 8);
  EXPECT_EQ(held(5), 8);
  EXPECT_EQ(held(4), 4);
  EXPECT_EQ(held(1), 4);
  EXPECT_EQ(held(0), 0);
}

}  // namespace
}  // namespace longstraw
