#include "longstraw/kernels/activation.hpp"

#include "kernels/support.hpp"
#include "reference/activation.hpp"

#include <limits>

namespace longstraw::test {
namespace {

struct Shape {
  int64_t rows;
  int64_t dim;
  int64_t padding;
  std::vector<int64_t> extents() const { return {rows, dim}; }
};

using Forward = void (*)(Stream&, const Tensor&, const Tensor&, const Tensor&);
using Backward = void (*)(Stream&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&);
using Reference = Array (*)(const Array&, const Array&);

Op gate_op(const char* name, Shape s, Forward forward, Backward backward, Reference reference) {
  Op op;
  op.name = name;
  op.forward = [=](DType type, const Arrays& in) {
    Stream stream;
    Held first(type, s.extents(), in[0], s.padding);
    Held second(type, s.extents(), in[1], 2 * s.padding);
    Held y(type, s.extents(), 9.0, s.padding);
    forward(stream, y, first, second);
    return Arrays{y.values()};
  };
  op.backward = [=](DType type, const Arrays& in, const Arrays& dout) {
    Stream stream;
    Held first(type, s.extents(), in[0], s.padding), second(type, s.extents(), in[1]);
    Held dfirst(type, s.extents(), 9.0, s.padding), dsecond(type, s.extents(), 9.0);
    Held dy(type, s.extents(), dout[0], s.padding);
    backward(stream, dfirst, dsecond, dy, first, second);
    return Arrays{dfirst.values(), dsecond.values()};
  };
  op.reference = [=](const Arrays& in) { return Arrays{reference(in[0], in[1])}; };
  return op;
}

Op swiglu_op(Shape s) { return gate_op("swiglu", s, swiglu, swiglu_backward, reference::swiglu); }
Op sigmoid_op(Shape s) {
  return gate_op("sigmoid_gate", s, sigmoid_gate, sigmoid_gate_backward, reference::sigmoid_gate);
}

TEST(Gates, ValuesAndGradients) {
  for (const int64_t rows : sizes_and_none)
    for (const int64_t dim : sizes) {
      const Shape shape{rows, dim, rows % 2 == 0 ? 3 : 0};
      const Arrays inputs = {random_array(rows * dim, 1, 3.0), random_array(rows * dim, 2, 3.0)};
      for (const Op& op : {swiglu_op(shape), sigmoid_op(shape)}) {
        check_values(op, inputs);
        check_gradients(op, inputs);
      }
    }
}

TEST(Gates, ExtremesGiveLimits) {
  // where e^x or e^-x overflows float32 (and, at 1000, float64)
  const Array x = {-1000, -104, -88.8, 88.8, 104, 1000}, one(6, 1.0);
  for (const DType type : {DType::float32, DType::float64}) {
    const Shape shape{2, 3, 0};
    const Array open = sigmoid_op(shape).forward(type, {one, x})[0];
    const Array product = swiglu_op(shape).forward(type, {x, one})[0];
    const Arrays slopes = swiglu_op(shape).backward(type, {x, one}, {one});
    for (int i = 0; i < 6; ++i) {
      // below 1e-36 at most: the tail of the sigmoid times its argument
      EXPECT_NEAR(open[i], x[i] > 0 ? 1 : 0, 1e-36);
      EXPECT_NEAR(product[i], x[i] > 0 ? static_cast<float>(x[i]) : 0,
                  x[i] > 0 ? 1e-5 * x[i] : 1e-36);
      EXPECT_NEAR(slopes[0][i], x[i] > 0 ? 1 : 0, 1e-36);
    }
  }
}

TEST(Gates, BackwardInPlace) {
  Stream stream;
  const std::vector<int64_t> shape = {65, 597};
  const Array a = random_array(65 * 597, 1), b = random_array(65 * 597, 2);
  const Array d = random_array(65 * 597, 3);
  const auto held = [&](const Array& values) { return Held(DType::float32, shape, values); };
  const Arrays apart = swiglu_op({65, 597, 0}).backward(DType::float32, {a, b}, {d});
  Held g = held(a), u = held(b), dy = held(d);
  swiglu_backward(stream, g.tensor(), u.tensor(), dy.tensor(), g.tensor(), u.tensor());
  EXPECT_EQ(g.values(), apart[0]);
  EXPECT_EQ(u.values(), apart[1]);

  Held o = held(a), t = held(b);
  sigmoid_gate(stream, o.tensor(), o.tensor(), t.tensor());
  EXPECT_EQ(o.values(), sigmoid_op({65, 597, 0}).forward(DType::float32, {a, b})[0]);
  const Arrays gradients = sigmoid_op({65, 597, 0}).backward(DType::float32, {a, b}, {d});
  Held dt = held(d), original = held(a), above = held(d);
  sigmoid_gate_backward(stream, above.tensor(), dt.tensor(), above.tensor(), original.tensor(),
                        t.tensor());
  EXPECT_EQ(above.values(), gradients[0]);
  EXPECT_EQ(dt.values(), gradients[1]);
}

TEST(Add, ContiguousAndStrided) {
  Stream stream;
  for (const DType type : {DType::float32, DType::float64})
    for (const int64_t rows : sizes_and_none)
      for (const int64_t padding : {0, 3}) {
        const Array a = random_array(rows * 65, 1), b = random_array(rows * 65, 2);
        Held y(type, {rows, 65}, a, padding), x(type, {rows, 65}, b);
        add(stream, y, x);
        const Array sum = y.values();
        // one rounding
        for (size_t i = 0; i < sum.size(); ++i)
          EXPECT_NEAR(sum[i], a[i] + b[i], epsilon(type) * std::abs(a[i] + b[i]));
      }
  EXPECT_EQ(stream.operations().at("longstraw::add::forward"),
            2 * 2 * 65.0 * (1 + 3 + 64 + 65 + 597));
}

// Values of the float32 computation (32 roundings, as above), rounded once.
TEST(Gates, ResultsOfBfloat16) {
  constexpr DType half = DType::bfloat16, full = DType::float32;
  constexpr double tolerance = 32 * 0x1p-23;
  Stream stream;
  for (const int64_t rows : {1, 3, 65})
    for (const int64_t dim : sizes) {
      const Array a = random_array(rows * dim, 1), b = random_array(rows * dim, 2);
      const Array d = random_array(rows * dim, 3);
      const Held ha(full, {rows, dim}, a, 3), hb(full, {rows, dim}, b), dy(full, {rows, dim}, d);
      Held y(half, {rows, dim}, 9.0, 5);
      swiglu(stream, y, ha, hb);
      expect_rounded(y.values(), reference::swiglu(a, b), tolerance, "swiglu");
      sigmoid_gate(stream, y, ha, hb);
      expect_rounded(y.values(), reference::sigmoid_gate(a, b), tolerance, "sigmoid_gate");

      const Shape shape{rows, dim, 0};
      const Arrays swiglu_should = swiglu_op(shape).backward(DType::float64, {a, b}, {d});
      const Arrays sigmoid_should = sigmoid_op(shape).backward(DType::float64, {a, b}, {d});
      for (const auto& [first, second] : {std::pair{half, half}, {half, full}, {full, half}}) {
        Held left(first, {rows, dim}, 9.0, 1), right(second, {rows, dim}, 9.0, 2);
        const auto check = [&](const Arrays& should, const char* what) {
          for (const auto& [is, type, i] :
               {std::tuple{left.values(), first, 0}, std::tuple{right.values(), second, 1}}) {
            if (type == half) expect_rounded(is, should[i], tolerance, what);
            expect_close(is, should[i], type == half ? half_rounding : tolerance, what);
          }
        };
        swiglu_backward(stream, left, right, dy, ha, hb);
        check(swiglu_should, "swiglu backward");
        sigmoid_gate_backward(stream, left, right, dy, ha, hb);
        check(sigmoid_should, "sigmoid_gate backward");
      }
    }
}

}  // namespace
}  // namespace longstraw::test
