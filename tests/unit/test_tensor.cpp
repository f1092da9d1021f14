#include "longstraw/core/field.hpp"
#include "longstraw/core/split.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

TEST(Tensor, ColumnsKeepTheRowStride) {
  float data[12];
  for (int i = 0; i < 12; ++i) data[i] = static_cast<float>(i);
  const Tensor whole(data, DType::float32, {3, 4});
  const Tensor part = whole.columns(1, 3).rows(1, 3);
  EXPECT_EQ(part.extent(0), 2);
  EXPECT_EQ(part.extent(1), 2);
  EXPECT_EQ(part.row_stride(), 4);
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(*part.row<float>(1), 9.0f);
}

TEST(Tensor, OfBfloat16) {
  bfloat16 data[6];
  for (int i = 0; i < 6; ++i) data[i] = bfloat16(static_cast<float>(i));
  const Tensor whole(data, DType::bfloat16, {2, 3});
  EXPECT_EQ(whole.bytes(), 12);
  EXPECT_EQ(whole.rows(1, 2).columns(2, 3).data<bfloat16>(), data + 5);
  EXPECT_EQ(*whole.columns(1, 3).row<bfloat16>(1), 4.0f);
  EXPECT_STREQ(name_of(DType::bfloat16), "bfloat16");
}

TEST(Types, ComputeAndStore) {
  EXPECT_EQ(compute_type(DType::bfloat16), DType::float32);
  EXPECT_EQ(compute_type(DType::float32), DType::float32);
  EXPECT_EQ(compute_type(DType::float64), DType::float64);
  const auto computed = [](DType type) {
    return dispatch(type, []<class T>(T) { return dtype_of<T>; });
  };
  EXPECT_EQ(computed(DType::float32), DType::float32);
  EXPECT_EQ(computed(DType::float64), DType::float64);
  const auto kept = []<class T>(T, DType type) {
    return dispatch_stored<T>(type, []<class S>(S) { return dtype_of<S>; });
  };
  EXPECT_EQ(kept(float{}, DType::float32), DType::float32);
  EXPECT_EQ(kept(float{}, DType::bfloat16), DType::bfloat16);
  EXPECT_EQ(kept(double{}, DType::float64), DType::float64);
  EXPECT_FALSE(stores<double>(DType::bfloat16));
  EXPECT_FALSE(stores<float>(DType::float64));
}

TEST(Field, CopyOfStridedRowsAndLedger) {
  Ledger ledger;
  {
    Field a = Field::zeros(ledger, "a", DType::float64, {2, 3});
    Field b(ledger, "b", DType::float64, {2, 2});
    for (int i = 0; i < 4; ++i) b.tensor().data<double>()[i] = i + 1;
    copy(a.tensor().columns(1, 3), b);
    EXPECT_EQ(a.tensor().data<double>()[0], 0.0);
    EXPECT_EQ(a.tensor().data<double>()[4], 3.0);
    EXPECT_EQ(ledger.total().current, 80);
    Field c(std::move(a));
    c = std::move(b);
    EXPECT_EQ(ledger.total().current, 32);
    EXPECT_EQ(ledger.entries().at("a").current, 0);
  }
  EXPECT_EQ(ledger.total().current, 0);
  EXPECT_EQ(ledger.total().peak, 80);
}

TEST(Errors, SpellOutControlCharacters) {
  using namespace std::string_literals;
  EXPECT_EQ(Error("id \"\x1b[2J\x7f\0\", Grüße,\tnext\nline"s).what(),
            "id \"\\x1b[2J\\x7f\\x00\", Grüße,\tnext\nline"s);
}

TEST(Split, PartsCoverEverythingOnce) {
  for (int parts : {1, 2, 3, 8})
    for (int64_t count : {0, 1, 7, 8, 597}) {
      int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        const Range part = part_of(count, parts, i);
        EXPECT_EQ(part.begin, next);
        EXPECT_LE(part.size(), part_of(count, parts, 0).size());
        EXPECT_GE(part.size(), part_of(count, parts, 0).size() - 1);
        next = part.end;
      }
      EXPECT_EQ(next, count);
    }
}

}  // namespace
}  // namespace longstraw
