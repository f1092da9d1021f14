#include "longstraw/kernels/convert.hpp"

#include "kernels/support.hpp"

#include <bit>
#include <limits>

namespace longstraw::test {
namespace {

constexpr DType half = DType::bfloat16, full = DType::float32;

std::vector<float> to_float(std::vector<bfloat16> from) {
  const auto size = static_cast<int64_t>(from.size());
  std::vector<float> to(size);
  Stream stream;
  convert(stream, Tensor(to.data(), full, {size}), Tensor(from.data(), half, {size}));
  return to;
}

std::vector<bfloat16> to_half(std::vector<float> from) {
  const auto size = static_cast<int64_t>(from.size());
  std::vector<bfloat16> to(size);
  Stream stream;
  convert(stream, Tensor(to.data(), half, {size}), Tensor(from.data(), full, {size}));
  return to;
}

TEST(Convert, EveryPatternWidensAndComesBack) {
  std::vector<bfloat16> patterns;
  for (int bits = 0; bits <= 0xffff; ++bits)
    patterns.push_back(bfloat16::from_bits(static_cast<uint16_t>(bits)));
  const auto wide = to_float(patterns);
  const auto back = to_half(wide);
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[bits]), bits << 16);
    // NaNs come back quiet, with what else they carry
    ASSERT_EQ(back[bits].bits, std::isnan(wide[bits]) ? bits | 0x40 : bits);
  }
}

// Between any two neighbours: what lies below the middle, in it, and above.
TEST(Convert, RoundsToNearestAndTiesToEven) {
  std::vector<float> values;
  std::vector<uint32_t> should;
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    if ((bits & 0x7f80) == 0x7f80) continue;
    for (const uint32_t rest : {0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(std::bit_cast<float>((bits << 16) | rest));
      should.push_back(bits + (rest > 0x8000 || (rest == 0x8000 && bits % 2 == 1)));
    }
  }
  const auto got = to_half(values);
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(got[i].bits, should[i]) << values[i];
}

TEST(Convert, InfinitiesNaNsAndDenormals) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  // a NaN whose upper half alone would be infinity, and one that rounding would carry to zero
  const float low = std::bit_cast<float>(0x7f800001u), all = std::bit_cast<float>(0xffffffffu);
  const auto got = to_half({infinity, -infinity, std::numeric_limits<float>::max(), low, all,
                            std::numeric_limits<float>::denorm_min(), 0x1p-133f, -0.0f});
  const std::vector<uint32_t> should = {0x7f80, 0xff80, 0x7f80, 0x7fc0, 0xffff, 0, 1, 0x8000};
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].bits, should[i]) << i;
}

TEST(Convert, AnyShapeAndStride) {
  Stream stream;
  for (const int64_t rows : {0, 1, 3, 65})
    for (const int64_t columns : sizes)
      for (const int64_t padding : {0, 5}) {
        const Array values = random_array(rows * columns, 1);
        Held narrow(half, {rows, columns}, 9.0, padding), wide(full, {rows, columns}, 9.0, 3);
        convert(stream, narrow, Held(full, {rows, columns}, values, 2 * padding));
        EXPECT_EQ(narrow.values(), rounded(values));
        convert(stream, wide, narrow);
        EXPECT_EQ(wide.values(), rounded(values));
      }
  // beyond the piece that is done at a time
  const int64_t size = 3 * 8192 + 7;
  const Array values = random_array(size, 2);
  Held narrow(half, {size}, 9.0), wide(full, {size, 1}, 9.0);
  convert(stream, narrow, Held(full, {1, size}, values));
  convert(stream, wide, narrow);
  EXPECT_EQ(wide.values(), rounded(values));
}

}  // namespace
}  // namespace longstraw::test
