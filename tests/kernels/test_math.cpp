#include "math.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace longstraw::test {
namespace {

/// Distance in units in the last place of float at `should`.
double ulps(float is, double should) {
  const double unit = std::max(std::ldexp(1.0, std::ilogb(should) - 23), 0x1p-149);
  return std::abs(is - should) / unit;
}

/// Floats of both signs up to `limit`, every 9973rd of them.
template <class Body>
void for_floats(float limit, const Body& body) {
  uint32_t last;
  std::memcpy(&last, &limit, sizeof last);
  for (uint32_t bits = 0; bits < last; bits += 9973) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    body(x);
    body(-x);
  }
}

TEST(Math, FloatFunctionsKeepTheirDigits) {
  double exp = 0, sigmoid = 0, softplus = 0;
  for_floats(88.7f, [&](float x) {
    const double e = std::exp(static_cast<double>(x)), back = std::exp(-static_cast<double>(x));
    exp = std::max(exp, ulps(math::exp(x), e));
    sigmoid = std::max(sigmoid, ulps(math::sigmoid(x), 1 / (1 + back)));
    softplus = std::max(softplus, ulps(math::softplus(x), std::log1p(e)));
  });
  EXPECT_LT(exp, 1.1);
  EXPECT_LT(sigmoid, 3.0);
  EXPECT_LT(softplus, 3.0);
}

TEST(Math, Extremes) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(math::exp(-inf), 0.0f);
  EXPECT_EQ(math::exp(-1e30f), 0.0f);
  EXPECT_EQ(math::exp(0.0f), 1.0f);
  EXPECT_EQ(math::exp(89.0f), inf);
  EXPECT_EQ(math::exp(inf), inf);
  EXPECT_TRUE(std::isnan(math::exp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(math::exp(-103.0f), static_cast<float>(std::exp(-103.0)));  // denormal
  EXPECT_EQ(math::sigmoid(-inf), 0.0f);
  EXPECT_EQ(math::sigmoid(inf), 1.0f);
  EXPECT_EQ(math::softplus(-inf), 0.0f);
  EXPECT_EQ(math::softplus(inf), inf);
  EXPECT_EQ(math::softplus(20.5), 20.5);
  EXPECT_EQ(math::softplus(20.0), std::log1p(std::exp(20.0)));
}

TEST(Math, SineAndCosineOfLargeAngles) {
  long double worst = 0;
  for (int64_t i = 0; i < 400000; ++i) {
    const double angle = static_cast<double>(i * 65) * 1.0000001 - 1.3e7;
    const auto [sine, cosine] = math::sincos(angle);
    const long double exact = angle;
    worst = std::max({worst, std::abs(sine - std::sin(exact)), std::abs(cosine - std::cos(exact))});
  }
  EXPECT_LE(worst, 0x1p-52L);  // one unit in the last place of 1
}

}  // namespace
}  // namespace longstraw::test
