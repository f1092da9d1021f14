#include "longstraw/kernels/vectors.hpp"

#include "longstraw/core/random.hpp"

#include "kernels/support.hpp"

#include <map>

namespace longstraw::test {
namespace {

// Beyond what is summed at a time, too.
const std::vector<int64_t> vector_sizes = {0, 1, 3, 64, 65, 597, 4096 * 256 + 5};

double sum_of(const Array& a, const Array& b, const std::function<double(double, double)>& term) {
  long double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += term(a[i], b[i]);
  return static_cast<double>(sum);
}

TEST(Vectors, ProductsAreSums) {
  Stream stream;
  for (const DType type : {DType::float32, DType::float64})
    for (const DType other : {DType::float32, DType::float64})
      for (const int64_t size : vector_sizes) {
        const Array a = random_array(size, 1), b = random_array(size, 2);
        const Products got = products(stream, Held(type, {size}, a), Held(other, {size}, b));
        // a million terms in sums of some 150, of which 8,000 are added one after the other
        const double bound = 100 * 0x1p-52 * static_cast<double>(size);
        EXPECT_NEAR(got.aa, sum_of(a, a, [](double x, double y) { return x * y; }), bound);
        EXPECT_NEAR(got.bb, sum_of(b, b, [](double x, double y) { return x * y; }), bound);
        EXPECT_NEAR(got.ab, sum_of(a, b, [](double x, double y) { return x * y; }), bound);
        EXPECT_NEAR(got.difference,
                    sum_of(a, b, [](double x, double y) { return (x - y) * (x - y); }), bound);
      }
}

TEST(Vectors, ProductWithADifferenceKeepsWhatCancels) {
  Stream stream;
  for (const DType type : {DType::float32, DType::float64})
    for (const int64_t size : vector_sizes) {
      const Array g = random_array(size, 3);
      const Array a(size, 1.0), b(size, 1.0 - 0x1p-20);
      const double got = product_with_difference(stream, Held(DType::float32, {size}, g),
                                                 Held(type, {size}, a), Held(type, {size}, b));
      EXPECT_NEAR(got, 0x1p-20 * sum_of(g, g, [](double x, double) { return x; }),
                  0x1p-20 * 100 * 0x1p-52 * static_cast<double>(size));
    }
}

TEST(Vectors, StepAlongRoundsOnce) {
  Stream stream;
  for (const int64_t size : vector_sizes) {
    const Array x = random_array(size, 4), d = random_array(size, 5);
    Held single(DType::float32, {size}, x), full(DType::float64, {size}, x);
    step_along(stream, single, single, Held(DType::float32, {size}, d), -0.3);
    step_along(stream, full, full, Held(DType::float64, {size}, d), -0.3);
    const Array got = single.values(), exact = full.values();
    for (int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(exact[i], x[i] + -0.3 * d[i]);
      ASSERT_EQ(got[i], static_cast<double>(static_cast<float>(exact[i])));
    }
  }
}

TEST(Vectors, NormalNumbersAreThoseOfTheirCounter) {
  Stream stream;
  Held few(DType::float64, {7}, 0.0), many(DType::float64, {100'000}, 0.0);
  fill_normal(stream, few, 11, 3);
  fill_normal(stream, many, 11, 3);
  const Array values = many.values();
  EXPECT_EQ(few.values(), Array(values.begin(), values.begin() + 7));
  fill_normal(stream, few, 11, 4);
  EXPECT_NE(few.values(), Array(values.begin(), values.begin() + 7));
}

// Moments of 100,000 numbers within 5 standard deviations of the estimate.
TEST(Vectors, NormalNumbersAreNormal) {
  Stream stream;
  Held held(DType::float64, {100'000}, 0.0);
  for (const uint64_t sequence : {0, 1, 2}) {
    fill_normal(stream, held, 1, sequence);
    const Array x = held.values();
    const double n = static_cast<double>(x.size());
    double mean = 0, square = 0, fourth = 0, neighbours = 0, beyond = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      mean += x[i] / n;
      square += x[i] * x[i] / n;
      fourth += x[i] * x[i] * x[i] * x[i] / n;
      neighbours += i == 0 ? 0 : x[i] * x[i - 1] / n;
      beyond += std::abs(x[i]) > 1.96 ? 1 / n : 0;
    }
    const double deviation = 1 / std::sqrt(n);
    EXPECT_NEAR(mean, 0, 5 * deviation);
    EXPECT_NEAR(square, 1, 5 * std::sqrt(2.0) * deviation);
    EXPECT_NEAR(fourth, 3, 5 * std::sqrt(96.0) * deviation);
    EXPECT_NEAR(neighbours, 0, 5 * deviation);
    EXPECT_NEAR(beyond, 0.05, 5 * std::sqrt(0.05 * 0.95) * deviation);
  }
}

TEST(Random, UnitIsInsideItsBounds) {
  std::map<int, int> tenths;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const double unit = random_unit(5, 6, i);
    ASSERT_GT(unit, 0);
    ASSERT_LT(unit, 1);
    ++tenths[static_cast<int>(10 * unit)];
  }
  // 10,000 expected in each, standard deviation 95
  for (const auto& [tenth, count] : tenths) EXPECT_NEAR(count, 10'000, 475) << tenth;
}

}  // namespace
}  // namespace longstraw::test
