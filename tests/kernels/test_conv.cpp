#include "longstraw/kernels/conv.hpp"

#include "kernels/support.hpp"
#include "reference/conv.hpp"

namespace longstraw::test {
namespace {

struct Shape {
  int64_t tokens;
  int64_t channels;
  int64_t taps;
  int64_t padding;
  int64_t size() const { return tokens * channels; }
};

/// Inputs m, tail, w; outputs y and the tail for the next block, so that its gradient is tested
/// too.
Op conv_op(Shape s) {
  const std::vector<int64_t> block = {s.tokens, s.channels};
  const std::vector<int64_t> before = {s.taps - 1, s.channels};
  const std::vector<int64_t> weights = {s.channels, s.taps};
  Op op;
  op.name = "causal_conv";
  op.forward = [=](DType type, const Arrays& in) {
    Stream stream;
    Held m(type, block, in[0], s.padding), tail(type, before, in[1]);
    Held w(type, weights, in[2]), y(type, block, 9.0, 2 * s.padding);
    causal_conv(stream, y, m, tail, w);
    advance_tail(stream, tail, m);
    return Arrays{y.values(), tail.values()};
  };
  op.backward = [=](DType type, const Arrays& in, const Arrays& dout) {
    Stream stream;
    Held m(type, block, in[0], s.padding), tail(type, before, in[1]);
    Held w(type, weights, in[2]), dy(type, block, dout[0], s.padding);
    Held dtail_next(type, before, dout[1]);
    Held dm(type, block, 9.0, s.padding), dtail(type, before, 9.0), dw(type, weights, 0.0);
    causal_conv_backward(stream, dm, dtail, dw, dy, dtail_next, m, tail, w);
    return Arrays{dm.values(), dtail.values(), dw.values()};
  };
  op.reference = [=](const Arrays& in) {
    Array extended = in[1];
    extended.insert(extended.end(), in[0].begin(), in[0].end());
    return Arrays{reference::causal_conv(in[0], in[1], in[2], s.channels),
                  Array(extended.end() - (s.taps - 1) * s.channels, extended.end())};
  };
  op.first_summed = 2;
  return op;
}

Arrays conv_inputs(Shape s) {
  return {random_array(s.size(), 1), random_array((s.taps - 1) * s.channels, 2),
          random_array(s.channels * s.taps, 3)};
}

TEST(CausalConv, ValuesAndGradients) {
  for (const int64_t tokens : {0, 1, 2, 3, 4, 64, 65, 597})
    for (const int64_t channels : sizes)
      for (const int64_t taps : {2, 3, 4}) {
        const Shape shape{tokens, channels, taps, tokens % 2 == 0 ? 5 : 0};
        check_values(conv_op(shape), conv_inputs(shape));
        check_gradients(conv_op(shape), conv_inputs(shape));
      }
}

TEST(CausalConv, BlocksGiveWhatOneBlockGives) {
  Stream stream;
  const Shape s{70, 65, 4, 0};
  const Arrays in = conv_inputs(s);
  const Array whole = conv_op(s).forward(DType::float32, in)[0];
  Held m(DType::float32, {70, 65}, in[0]), tail(DType::float32, {3, 65}, in[1]);
  Held w(DType::float32, {65, 4}, in[2]), y(DType::float32, {70, 65}, 9.0);
  int64_t begin = 0;
  for (const int64_t end : {1, 3, 3, 40, 70}) {
    const Tensor part = m.tensor().rows(begin, end);
    causal_conv(stream, y.tensor().rows(begin, end), part, tail, w);
    advance_tail(stream, tail, part);
    begin = end;
  }
  EXPECT_EQ(y.values(), whole);
}

TEST(CausalConv, WithoutGradientFromALaterBlockAndOntoAWeightGradient) {
  Stream stream;
  const Shape s{5, 3, 4, 0};
  const Arrays in = conv_inputs(s), dout = {random_array(15, 7), Array(9, 0.0)};
  const Arrays with_zeros = conv_op(s).backward(DType::float64, in, dout);
  Held m(DType::float64, {5, 3}, in[0]), tail(DType::float64, {3, 3}, in[1]);
  Held w(DType::float64, {3, 4}, in[2]), dy(DType::float64, {5, 3}, dout[0]);
  Held dm(DType::float64, {5, 3}, 9.0), dtail(DType::float64, {3, 3}, 9.0);
  Held dw(DType::float64, {3, 4}, 1.0);
  causal_conv_backward(stream, dm, dtail, dw, dy, Tensor(), m, tail, w);
  EXPECT_EQ(dm.values(), with_zeros[0]);
  EXPECT_EQ(dtail.values(), with_zeros[1]);
  // one more rounding, of a sum of a few units
  for (int i = 0; i < 12; ++i) EXPECT_NEAR(dw.values()[i], 1 + with_zeros[2][i], 16 * 0x1p-52);
}

TEST(CausalConv, RefusesTapsThatAreNotBuiltIn) {
  Stream stream;
  Held m(DType::float32, {2, 3}, 0.0), tail(DType::float32, {4, 3}, 0.0);
  Held w(DType::float32, {3, 5}, 0.0), y(DType::float32, {2, 3}, 0.0);
  EXPECT_THROW(causal_conv(stream, y, m, tail, w), Error);
}

}  // namespace
}  // namespace longstraw::test
