#include "longstraw/io/number_formats.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

namespace longstraw {
namespace {

// A binary format by its definition: values are significand * 2^(exponent - fraction bits),
// subnormal below the least exponent, infinite from one step above the largest.
struct Format {
  int fraction_bits, least_exponent, largest_exponent;
};
constexpr Format bf16{7, -126, 127}, f16{10, -14, 15};

double value_of(uint16_t bits, const Format& format) {
  const int fraction_bits = format.fraction_bits;
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  double value = exponent == 0 ? std::ldexp(fraction, format.least_exponent - fraction_bits)
                               : std::ldexp(fraction + (1 << fraction_bits),
                                            exponent - 1 + format.least_exponent - fraction_bits);
  if (exponent - 1 + format.least_exponent > format.largest_exponent)
    value = fraction == 0 ? INFINITY : NAN;
  return (bits & 0x8000) ? -value : value;
}

// Nearest value of the format in exact arithmetic (scaling by powers of two), ties to even.
double rounded(double x, const Format& format) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), format.least_exponent);
  const int step = exponent - format.fraction_bits;
  const double result = std::ldexp(std::nearbyint(std::ldexp(x, -step)), step);
  const double beyond = std::ldexp(1.0, format.largest_exponent + 1);
  return std::abs(result) >= beyond ? std::copysign(INFINITY, x) : result;
}

void expect_rounds(double x) {
  EXPECT_EQ(from_bf16(to_bf16(x)), rounded(x, bf16)) << x;
  EXPECT_EQ(from_f16(to_f16(x)), rounded(x, f16)) << x;
  const auto single = static_cast<float>(x);
  EXPECT_EQ(from_bf16(to_bf16(single)), rounded(single, bf16)) << single;
  EXPECT_EQ(from_f16(to_f16(single)), rounded(single, f16)) << single;
}

TEST(NumberFormats, EveryPatternWidensToItsValueAndComesBack) {
  for (int pattern = 0; pattern <= 0xffff; ++pattern) {
    const auto bits = static_cast<uint16_t>(pattern);
    for (const bool half : {false, true}) {
      const double expected = value_of(bits, half ? f16 : bf16);
      const float widened = half ? from_f16(bits) : from_bf16(bits);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(widened)) << pattern;
        EXPECT_TRUE(std::isnan(half ? from_f16(to_f16(widened)) : from_bf16(to_bf16(widened))));
        continue;
      }
      ASSERT_EQ(widened, expected) << pattern;
      ASSERT_EQ(std::signbit(widened), std::signbit(expected)) << pattern;
      ASSERT_EQ(half ? to_f16(widened) : to_bf16(widened), bits);
      ASSERT_EQ(half ? to_f16(expected) : to_bf16(expected), bits);
    }
  }
}

// Half way between neighbours, and just beside it, for every pair of neighbours; the last pair is
// the largest number and infinity.
TEST(NumberFormats, RoundsToNearestEvenAroundEveryMidpoint) {
  for (const Format& format : {bf16, f16})
    for (int pattern = 0; value_of(static_cast<uint16_t>(pattern), format) < INFINITY; ++pattern) {
      const double low = value_of(static_cast<uint16_t>(pattern), format);
      double high = value_of(static_cast<uint16_t>(pattern + 1), format);
      if (std::isinf(high)) high = std::ldexp(1.0, format.largest_exponent + 1);
      const double middle = low + (high - low) / 2;
      for (double x : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, INFINITY)}) {
        expect_rounds(x);
        expect_rounds(-x);
      }
    }
}

TEST(NumberFormats, RoundsRandomNumbersOfAllMagnitudes) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const double x = std::bit_cast<double>(random());
    if (std::isfinite(x)) expect_rounds(x);
    const auto single = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(single)) expect_rounds(single);
    expect_rounds(std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(i % 60) - 90));
  }
}

// A double just above the middle of two bf16 numbers, by less than a float resolves: rounding
// through float would see a tie and go down.
TEST(NumberFormats, DoublesAreRoundedOnce) {
  const double x = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(from_bf16(to_bf16(x)), 1.0f + 0x1p-7f);
  EXPECT_EQ(from_bf16(to_bf16(static_cast<float>(x))), 1.0f);
  EXPECT_EQ(from_f16(to_f16(1.0 + 0x1p-11 + 0x1p-40)), 1.0f + 0x1p-10f);
}

}  // namespace
}  // namespace longstraw
