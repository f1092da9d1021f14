#include "longstraw/kernels/adamw.hpp"

#include "kernels/support.hpp"
#include "reference/adamw.hpp"

#include <limits>

namespace longstraw::test {
namespace {

TEST(AdamW, FollowsTheLoopOfTorch) {
  Stream stream;
  for (const DType type : {DType::float32, DType::float64})
    for (const int64_t size : {0, 1, 3, 64, 65, 597, 5000}) {
      Array weight = random_array(size, 1), m(size, 0.0), v(size, 0.0);
      Held held(type, {size}, weight), held_m(type, {size}, 0.0), held_v(type, {size}, 0.0);
      for (int step = 1; step <= 5; ++step) {
        const Array gradient = random_array(size, 10 + step);
        const AdamW settings{.lr = 1e-2,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .step = step,
                             .grad_scale = 0.3};
        Held slope(type, {size}, gradient);
        adamw(stream, held, held_m, held_v, slope, settings);
        reference::adamw(weight, m, v, gradient, settings);
      }
      // each of five steps rounds each result once; m may be the rest of terms of its size
      expect_close(held.values(), weight, 10 * epsilon(type), "weight");
      expect_close(held_m.values(), m, 20 * epsilon(type), "m");
      expect_close(held_v.values(), v, 20 * epsilon(type), "v");
    }
}

TEST(AdamW, NoGradientOnlyDecays) {
  Stream stream;
  Held weight(DType::float64, {3}, 2.0), m(DType::float64, {3}, 0.0), v(DType::float64, {3}, 0.0);
  Held gradient(DType::float64, {3}, 0.0);
  adamw(stream, weight, m, v, gradient, {.lr = 0.1, .weight_decay = 0.5, .step = 1});
  for (const double value : weight.values()) EXPECT_EQ(value, 2.0 * (1 - 0.1 * 0.5));
}

TEST(SumOfSquares, AnyShape) {
  Stream stream;
  for (const DType type : {DType::float32, DType::float64})
    for (const int64_t rows : sizes_and_none)
      for (const int64_t padding : {0, 3}) {
        const Array x = random_array(rows * 65, 1);
        long double sum = 0;
        for (const double value : x) sum += static_cast<long double>(value) * value;
        const auto should = static_cast<double>(sum);
        Held held(type, {rows, 65}, x, padding);
        // some 150 positive numbers one after the other in each of 32 sums, 597 rows of these
        EXPECT_NEAR(sum_of_squares(stream, held), should, 64 * 0x1p-52 * should);
        EXPECT_EQ(sum_of_squares(stream, held), sum_of_squares(stream, held));
      }
  const int64_t many = 4096 * 256 + 4097;  // beyond what is summed together
  Held ones(DType::float32, {many}, 1.0);
  EXPECT_EQ(sum_of_squares(stream, ones), static_cast<double>(many));
}

TEST(SumOfSquares, ShowsWhatIsNotFinite) {
  Stream stream;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    Array x(597, 1.0);
    x[400] = bad;
    EXPECT_FALSE(std::isfinite(sum_of_squares(stream, Held(DType::float32, {597}, x))));
  }
}

}  // namespace
}  // namespace longstraw::test
