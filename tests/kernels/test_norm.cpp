#include "longstraw/kernels/norm.hpp"

#include "kernels/support.hpp"
#include "reference/norm.hpp"

namespace longstraw::test {
namespace {

/// Far larger than in models, so that rows of one element, whose gradient vanishes with eps, have
/// one that float32 can resolve and that differences can follow near 0.
constexpr double wide_eps = 1.0;

struct Shape {
  int64_t rows;
  int64_t dim;
  int64_t padding = 0;
  double eps = wide_eps;
  std::vector<int64_t> extents() const { return {rows, dim}; }
  int64_t size() const { return rows * dim; }
};

Op rms_op(Shape s, NormWeight kind) {
  Op op;
  op.name = "rms_norm";
  op.forward = [=](DType type, const Arrays& in) {
    Stream stream;
    Held x(type, s.extents(), in[0], s.padding), w(type, {s.dim}, in[1]);
    Held y(type, s.extents(), 9.0, 2 * s.padding);
    rms_norm(stream, y, x, w, kind, s.eps);
    return Arrays{y.values()};
  };
  op.backward = [=](DType type, const Arrays& in, const Arrays& dout) {
    Stream stream;
    Held x(type, s.extents(), in[0], s.padding), w(type, {s.dim}, in[1]);
    Held dy(type, s.extents(), dout[0], s.padding), dx(type, s.extents(), 9.0, s.padding);
    Held dw(type, {s.dim}, 0.0);
    rms_norm_backward(stream, dx, dw, dy, x, w, kind, s.eps);
    return Arrays{dx.values(), dw.values()};
  };
  op.reference = [=](const Arrays& in) {
    return Arrays{reference::rms_norm(in[0], in[1], kind == NormWeight::zero_centred, s.eps)};
  };
  op.first_summed = 1;
  return op;
}

Op gated_op(Shape s) {
  Op op;
  op.name = "gated_rms_norm";
  op.forward = [=](DType type, const Arrays& in) {
    Stream stream;
    Held x(type, s.extents(), in[0], s.padding), z(type, s.extents(), in[1], s.padding);
    Held w(type, {s.dim}, in[2]), y(type, s.extents(), 9.0, s.padding);
    gated_rms_norm(stream, y, x, z, w, s.eps);
    return Arrays{y.values()};
  };
  op.backward = [=](DType type, const Arrays& in, const Arrays& dout) {
    Stream stream;
    Held x(type, s.extents(), in[0], s.padding), z(type, s.extents(), in[1], s.padding);
    Held w(type, {s.dim}, in[2]), dy(type, s.extents(), dout[0], s.padding);
    Held dx(type, s.extents(), 9.0), dz(type, s.extents(), 9.0), dw(type, {s.dim}, 0.0);
    gated_rms_norm_backward(stream, dx, dz, dw, dy, x, z, w, s.eps);
    return Arrays{dx.values(), dz.values(), dw.values()};
  };
  op.reference = [=](const Arrays& in) {
    return Arrays{reference::gated_rms_norm(in[0], in[1], in[2], s.eps)};
  };
  op.first_summed = 2;
  return op;
}

Op l2_op(Shape s, double scale) {
  Op op;
  op.name = "l2_norm";
  op.forward = [=](DType type, const Arrays& in) {
    Stream stream;
    Held x(type, s.extents(), in[0], s.padding), y(type, s.extents(), 9.0, s.padding);
    l2_norm(stream, y, x, scale, s.eps);
    return Arrays{y.values()};
  };
  op.backward = [=](DType type, const Arrays& in, const Arrays& dout) {
    Stream stream;
    Held x(type, s.extents(), in[0], s.padding), dy(type, s.extents(), dout[0], s.padding);
    Held dx(type, s.extents(), 9.0, s.padding);
    l2_norm_backward(stream, dx, dy, x, scale, s.eps);
    return Arrays{dx.values()};
  };
  op.reference = [=](const Arrays& in) {
    return Arrays{reference::l2_norm(in[0], s.dim, scale, s.eps)};
  };
  return op;
}

TEST(RmsNorm, ValuesAndGradients) {
  for (const NormWeight kind : {NormWeight::plain, NormWeight::zero_centred})
    for (const int64_t rows : sizes_and_none)
      for (const int64_t dim : sizes) {
        const Shape shape{rows, dim, rows % 2 == 0 ? 5 : 0};
        const Arrays inputs = {random_array(shape.size(), 1), random_array(dim, 2)};
        check_values(rms_op(shape, kind), inputs);
        check_gradients(rms_op(shape, kind), inputs);
      }
}

TEST(RmsNorm, RowsWiderThanOneWindowOfTheWeightGradient) {
  const Shape shape{21, 8192 + 65, 0, 1e-6};
  const Arrays inputs = {random_array(shape.size(), 1), random_array(shape.dim, 2)};
  check_values(rms_op(shape, NormWeight::plain), inputs);
  check_gradients(rms_op(shape, NormWeight::plain), inputs);
}

TEST(RmsNorm, BackwardInPlaceAndAccumulating) {
  Stream stream;
  const Shape s{65, 64};
  const Arrays in = {random_array(s.size(), 1), random_array(s.dim, 2), random_array(s.size(), 3)};
  const auto run = [&](const Tensor& dx, const Tensor& dw, const Tensor& dy, bool accumulate) {
    Held x(DType::float32, s.extents(), in[0]), w(DType::float32, {s.dim}, in[1]);
    rms_norm_backward(stream, dx, dw, dy, x, w, NormWeight::zero_centred, s.eps, accumulate);
  };
  Held dy(DType::float32, s.extents(), in[2]), dx(DType::float32, s.extents(), 9.0);
  Held dw(DType::float32, {s.dim}, 0.0), dw_again(DType::float32, {s.dim}, 0.0);
  run(dx, dw, dy, false);
  Held in_place(DType::float32, s.extents(), in[2]);
  run(in_place, dw_again, in_place, false);
  EXPECT_EQ(in_place.values(), dx.values());
  EXPECT_EQ(dw_again.values(), dw.values());

  Held more(DType::float32, s.extents(), 0.5);
  run(more, dw_again, dy, true);
  const Array sum = more.values(), alone = dx.values(), twice = dw_again.values();
  const Array once = dw.values();
  // one more rounding at the size of the sum
  for (int64_t i = 0; i < s.size(); ++i) EXPECT_NEAR(sum[i], 0.5 + alone[i], 8 * 0x1p-24);
  for (int64_t c = 0; c < s.dim; ++c) EXPECT_NEAR(twice[c], 2 * once[c], 128 * 0x1p-24);
}

TEST(RmsNorm, WeightGradientOfManyRowsKeepsItsDigits) {
  // 20,000 equal terms: a running sum in float32 would be off by some 1e-5
  const Shape s{20000, 3};
  Stream stream;
  Held x(DType::float32, s.extents(), 0.3), w(DType::float32, {s.dim}, 1.0);
  Held dy(DType::float32, s.extents(), 0.1f), dx(DType::float32, s.extents(), 0.0);
  Held dw(DType::float32, {s.dim}, 0.0);
  rms_norm_backward(stream, dx, dw, dy, x, w, NormWeight::plain, 0.0);
  // 16 roundings within a block of rows, all in the same direction for equal terms
  for (const double value : dw.values()) EXPECT_NEAR(value, 2000.0, 2000.0 * 16 * 0x1p-24);
}

TEST(GatedRmsNorm, ValuesAndGradients) {
  for (const int64_t rows : sizes_and_none)
    for (const int64_t dim : sizes) {
      const Shape shape{rows, dim, rows % 2 == 0 ? 3 : 0};
      const Arrays inputs = {random_array(shape.size(), 1), random_array(shape.size(), 2, 2.0),
                             random_array(dim, 3)};
      check_values(gated_op(shape), inputs);
      check_gradients(gated_op(shape), inputs);
    }
}

TEST(Norms, InPlace) {
  Stream stream;
  const Shape s{65, 64};
  constexpr DType type = DType::float32;
  const Arrays in = {random_array(s.size(), 1), random_array(s.size(), 2), random_array(s.dim, 3)};
  const Arrays dout = {random_array(s.size(), 4)};
  const Held x(type, s.extents(), in[0]), w(type, {s.dim}, in[2]);
  Held y(type, s.extents(), in[0]), z(type, s.extents(), in[1]);
  gated_rms_norm(stream, y, y, z, w, s.eps);
  EXPECT_EQ(y.values(), gated_op(s).forward(type, in)[0]);
  Held gradient(type, s.extents(), dout[0]), dw(type, {s.dim}, 0.0);
  gated_rms_norm_backward(stream, gradient, z, dw, gradient, x, z, w, s.eps);
  EXPECT_EQ((Arrays{gradient.values(), z.values(), dw.values()}),
            gated_op(s).backward(type, in, dout));

  Held plain(type, s.extents(), in[0]), unit(type, s.extents(), in[0]);
  rms_norm(stream, plain, plain, w, NormWeight::plain, s.eps);
  EXPECT_EQ(plain.values(), rms_op(s, NormWeight::plain).forward(type, {in[0], in[2]})[0]);
  l2_norm(stream, unit, unit, 0.5, s.eps);
  EXPECT_EQ(unit.values(), l2_op(s, 0.5).forward(type, in)[0]);
  Held above(type, s.extents(), dout[0]);
  l2_norm_backward(stream, above, above, x, 0.5, s.eps);
  EXPECT_EQ(above.values(), l2_op(s, 0.5).backward(type, in, dout)[0]);
}

TEST(L2Norm, ValuesAndGradients) {
  for (const int64_t rows : sizes_and_none)
    for (const int64_t dim : sizes) {
      const Shape shape{rows, dim, rows % 2 == 0 ? 7 : 0};
      const Arrays inputs = {random_array(shape.size(), 1)};
      check_values(l2_op(shape, 0.25), inputs);
      check_gradients(l2_op(shape, 0.25), inputs);
    }
}

TEST(L2Norm, RowsOfZeros) {
  const Shape s{3, 65, 0, 1e-6};
  const Arrays zeros = {Array(s.size(), 0.0)}, dout = {random_array(s.size(), 4)};
  for (const DType type : {DType::float32, DType::float64}) {
    EXPECT_EQ(l2_op(s, 1).forward(type, zeros)[0], zeros[0]);
    Array slope = dout[0];  // the derivative at 0 is 1 / sqrt(eps)
    for (double& value : slope) value /= std::sqrt(s.eps);
    expect_close(l2_op(s, 1).backward(type, zeros, dout)[0], slope, 4 * epsilon(type), "at zero");
  }
}

// Values of the float32 computation (32 roundings, as above), rounded once.
TEST(Norms, ResultsAndWeightsOfBfloat16) {
  constexpr DType half = DType::bfloat16, full = DType::float32;
  constexpr double tolerance = 32 * 0x1p-23;
  Stream stream;
  for (const int64_t rows : {1, 3, 65})
    for (const int64_t dim : {1, 3, 64, 597}) {
      const Array x = random_array(rows * dim, 1), z = random_array(rows * dim, 2);
      const Array w = rounded(random_array(dim, 3));
      const Held hx(full, {rows, dim}, x, 3), hz(full, {rows, dim}, z);
      for (const DType weights : {half, full}) {
        const Held hw(weights, {dim}, w);
        Held y(half, {rows, dim}, 9.0, 5), gated(half, {rows, dim}, 9.0),
            wide(full, {rows, dim}, 9.0);
        rms_norm(stream, y, hx, hw, NormWeight::zero_centred, wide_eps);
        expect_rounded(y.values(), reference::rms_norm(x, w, true, wide_eps), tolerance, "rms");
        rms_norm(stream, wide, hx, hw, NormWeight::plain, wide_eps);
        expect_close(wide.values(), reference::rms_norm(x, w, false, wide_eps), tolerance, "rms");
        gated_rms_norm(stream, gated, hx, hz, hw, wide_eps);
        expect_rounded(gated.values(), reference::gated_rms_norm(x, z, w, wide_eps), tolerance,
                       "gated");
      }
      Held y(half, {rows, dim}, 9.0, 5);
      l2_norm(stream, y, hx, 0.5, wide_eps);
      expect_rounded(y.values(), reference::l2_norm(x, dim, 0.5, wide_eps), tolerance, "l2");
    }
}

// The same numbers in another type: the same gradients.
TEST(Norms, BackwardWithWeightsOfBfloat16) {
  constexpr DType full = DType::float32;
  constexpr int64_t rows = 65, dim = 597;
  const Array x = random_array(rows * dim, 1), z = random_array(rows * dim, 2);
  const Array w = rounded(random_array(dim, 3)), d = random_array(rows * dim, 4);
  Stream stream;
  const auto gradients = [&](DType weights) {
    const Held hx(full, {rows, dim}, x), hz(full, {rows, dim}, z), dy(full, {rows, dim}, d);
    const Held hw(weights, {dim}, w);
    Held dx(full, {rows, dim}, 9.0), dz(full, {rows, dim}, 9.0), dw(full, {dim}, 0.0);
    Held gated_dx(full, {rows, dim}, 9.0), gated_dw(full, {dim}, 0.0);
    rms_norm_backward(stream, dx, dw, dy, hx, hw, NormWeight::zero_centred, wide_eps);
    gated_rms_norm_backward(stream, gated_dx, dz, gated_dw, dy, hx, hz, hw, wide_eps);
    return Arrays{dx.values(), dw.values(), gated_dx.values(), dz.values(), gated_dw.values()};
  };
  const Arrays is = gradients(DType::bfloat16), should = gradients(full);
  for (size_t i = 0; i < is.size(); ++i)
    expect_close(is[i], should[i], 4 * 0x1p-23, "gradient " + std::to_string(i));
  expect_same(is, gradients(DType::bfloat16), "run twice");
}

}  // namespace
}  // namespace longstraw::test
