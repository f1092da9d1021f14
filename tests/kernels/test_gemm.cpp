#include "longstraw/kernels/gemm.hpp"

#include "kernels/support.hpp"
#include "longstraw/core/check.hpp"
#include "reference/gemm.hpp"

#include <limits>

namespace longstraw::test {
namespace {

struct Extents {
  int64_t m, n, k;
};
constexpr Extents shapes[] = {{1, 1, 1}, {3, 64, 65}, {65, 3, 597}, {64, 65, 1}, {597, 65, 64},
                              {0, 3, 4}, {3, 0, 4},   {3, 4, 0},    {65, 64, 3}};

/// Matrix before the transposition that makes it [rows, columns].
Held operand(DType type, int64_t rows, int64_t columns, Transpose transpose, const Array& values,
             int64_t padding) {
  if (transpose == Transpose::yes) std::swap(rows, columns);
  return Held(type, {rows, columns}, values, padding);
}

TEST(Gemm, AllTransposesAlphaAndBeta) {
  Stream stream;
  for (const DType type : {DType::float32, DType::float64})
    for (const auto& [m, n, k] : shapes)
      for (const Transpose ta : {Transpose::no, Transpose::yes})
        for (const Transpose tb : {Transpose::no, Transpose::yes})
          for (const double beta : {0.0, 1.0, -0.5}) {
            const Array a = random_array(m * k, 1), b = random_array(k * n, 2);
            const double nan = std::numeric_limits<double>::quiet_NaN();
            const Array before = beta == 0 ? Array(m * n, nan) : random_array(m * n, 3);
            const Held left = operand(type, m, k, ta, a, 3), right = operand(type, k, n, tb, b, 5);
            Held c(type, {m, n}, before, 2);
            gemm(stream, c, left, ta, right, tb, 0.5, beta);
            Array should =
                reference::product(a, ta == Transpose::yes, b, tb == Transpose::yes, m, n, k);
            for (size_t i = 0; i < should.size(); ++i)
              should[i] = 0.5 * should[i] + (beta == 0 ? 0 : beta * before[i]);
            // roundings of a sum of k terms add up like sqrt(k) (25 at most); five-fold
            expect_close(c.values(), should, 128 * epsilon(type), "gemm");
          }
}

// Beyond the panels that operands are widened by, too.
constexpr Extents stored_shapes[] = {{1, 1, 1},    {3, 1, 597},  {597, 3, 1},      {1, 597, 3},
                                     {257, 3, 65}, {3, 1025, 3}, {255, 1023, 255}, {257, 1025, 257},
                                     {0, 3, 4},    {3, 0, 4},    {3, 4, 0}};

TEST(Gemm, OperandsOfBfloat16) {
  constexpr DType half = DType::bfloat16, full = DType::float32;
  Stream stream;
  for (const auto& [m, n, k] : stored_shapes) {
    const Array a = rounded(random_array(m * k, 1)), b = rounded(random_array(k * n, 2));
    for (const Transpose ta : {Transpose::no, Transpose::yes})
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const Array products =
            reference::product(a, ta == Transpose::yes, b, tb == Transpose::yes, m, n, k);
        for (const auto& [left, right] : {std::pair{half, half}, {half, full}, {full, half}}) {
          const Held ha = operand(left, m, k, ta, a, 3), hb = operand(right, k, n, tb, b, 5);
          for (const double beta : {0.0, 1.0}) {
            const double before = beta == 0 ? std::nan("") : 0.25;
            Array should = products;
            for (double& value : should) value = 0.5 * value + (beta == 0 ? 0 : before);
            Held c(full, {m, n}, before, 2), again(full, {m, n}, before, 2);
            gemm(stream, c, ha, ta, hb, tb, 0.5, beta);
            gemm(stream, again, ha, ta, hb, tb, 0.5, beta);
            // as of float32, since the operands are given as they are stored
            expect_close(c.values(), should, 128 * epsilon(full), "gemm of bfloat16");
            EXPECT_EQ(c.values(), again.values());
          }
        }
      }
  }
}

TEST(Gemm, RoundsAResultOfBfloat16Once) {
  constexpr DType half = DType::bfloat16, full = DType::float32;
  Stream stream;
  for (const auto& [m, n, k] : stored_shapes) {
    const Array a = rounded(random_array(m * k, 1)), b = rounded(random_array(k * n, 2));
    const Array should = reference::product(a, false, b, true, m, n, k);
    for (const DType type : {half, full}) {
      Held c(half, {m, n}, 9.0, 2), again(half, {m, n}, 9.0, 2);
      const Held ha(type, {m, k}, a), hb(type, {n, k}, b, 1);
      linear(stream, c, ha, hb);
      linear(stream, again, ha, hb);
      expect_rounded(c.values(), should, 128 * epsilon(full), "gemm to bfloat16");
      EXPECT_EQ(c.values(), again.values());
    }
  }
}

TEST(Gemm, RefusesExtentsBeyondTheBlas) {
  Stream stream;
  const int64_t many = int64_t{1} << 31;
  const Tensor c(nullptr, DType::float32, {1, many}), b(nullptr, DType::float32, {1, many});
  const Tensor a(nullptr, DType::float32, {1, 1});
  EXPECT_THROW(gemm(stream, c, a, Transpose::no, b, Transpose::no), Error);
}

TEST(Linear, ForwardAndBackward) {
  Stream stream;
  for (const DType type : {DType::float32, DType::float64})
    for (const int64_t tokens : sizes_and_none) {
      const int64_t in = 65, out = 3;
      const Array x = random_array(tokens * in, 1), w = random_array(out * in, 2);
      const Array dy = random_array(tokens * out, 3);
      const Held hx(type, {tokens, in}, x, 4), hw(type, {out, in}, w), hdy(type, {tokens, out}, dy);
      Held y(type, {tokens, out}, 9.0, 4), dx(type, {tokens, in}, 9.0), dw(type, {out, in}, 0.5);
      const double tolerance = 128 * epsilon(type);
      linear(stream, y, hx, hw);
      expect_close(y.values(), reference::product(x, false, w, true, tokens, out, in), tolerance,
                   "y");
      linear_backward(stream, dx, dw, hdy, hx, hw);
      Array dx_should = reference::product(dy, false, w, false, tokens, in, out);
      Array dw_should = reference::product(dy, true, x, false, out, in, tokens);
      for (double& value : dw_should) value += 0.5;
      expect_close(dx.values(), dx_should, tolerance, "dx");
      expect_close(dw.values(), dw_should, tolerance, "dw");

      linear_backward(stream, dx, Tensor(), hdy, hx, hw, true);
      for (double& value : dx_should) value *= 2;
      expect_close(dx.values(), dx_should, tolerance, "dx accumulated");
      const Array kept = dx.values();
      linear_backward(stream, Tensor(), dw, hdy, hx, hw);
      EXPECT_EQ(dx.values(), kept);
    }
}

TEST(Linear, ForwardAndBackwardOfBfloat16) {
  constexpr DType half = DType::bfloat16, full = DType::float32;
  constexpr double tolerance = 128 * 0x1p-23;
  Stream stream;
  for (const int64_t tokens : sizes_and_none)
    for (const DType above : {half, full}) {
      const int64_t in = 65, out = 257;
      const Array x = rounded(random_array(tokens * in, 1)), w = rounded(random_array(out * in, 2));
      const Array dy = rounded(random_array(tokens * out, 3));
      const Held hx(half, {tokens, in}, x, 4), hw(half, {out, in}, w);
      const Held hdy(above, {tokens, out}, dy);
      Held y(full, {tokens, out}, 9.0, 4), dx(full, {tokens, in}, 0.5), dw(full, {out, in}, 0.5);
      linear(stream, y, hx, hw);
      linear_backward(stream, dx, dw, hdy, hx, hw, true);
      Array dx_should = reference::product(dy, false, w, false, tokens, in, out);
      Array dw_should = reference::product(dy, true, x, false, out, in, tokens);
      for (Array* sums : {&dx_should, &dw_should})
        for (double& value : *sums) value += 0.5;
      expect_close(y.values(), reference::product(x, false, w, true, tokens, out, in), tolerance,
                   "y");
      expect_close(dx.values(), dx_should, tolerance, "dx");
      expect_close(dw.values(), dw_should, tolerance, "dw");
    }
}

TEST(Linear, CountsOperations) {
  Stream stream;
  const Held x(DType::float32, {7, 5}, 1.0), w(DType::float32, {3, 5}, 1.0);
  Held y(DType::float32, {7, 3}, 0.0), dx(DType::float32, {7, 5}, 0.0);
  Held dw(DType::float32, {3, 5}, 0.0);
  linear(stream, y, x, w);
  linear_backward(stream, dx, dw, y, x, w);
  for (const auto label : {"longstraw::linear::forward", "longstraw::linear::backward_input",
                           "longstraw::linear::backward_weight"})
    EXPECT_EQ(stream.operations().at(label), 2.0 * 7 * 5 * 3);
}

}  // namespace
}  // namespace longstraw::test
