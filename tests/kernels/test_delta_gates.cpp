#include "kernels/support.hpp"
#include "longstraw/kernels/delta_rule.hpp"
#include "reference/delta_gates.hpp"

namespace longstraw::test {
namespace {

Op gates_op(int64_t tokens, int64_t heads, int64_t padding) {
  const std::vector<int64_t> block = {tokens, heads};
  Op op;
  op.name = "delta_gates";
  op.forward = [=](DType type, const Arrays& in) {
    Stream stream;
    Held a(type, block, in[0], padding), b(type, block, in[1], 2 * padding);
    Held a_log(type, {heads}, in[2]), dt_bias(type, {heads}, in[3]);
    Held g(type, block, 9.0), beta(type, block, 9.0);
    delta_gates(stream, g, beta, a, b, a_log, dt_bias);
    return Arrays{g.values(), beta.values()};
  };
  op.backward = [=](DType type, const Arrays& in, const Arrays& dout) {
    Stream stream;
    Held a(type, block, in[0], padding), b(type, block, in[1], padding);
    Held a_log(type, {heads}, in[2]), dt_bias(type, {heads}, in[3]);
    Held dg(type, block, dout[0]), dbeta(type, block, dout[1]);
    Held da(type, block, 9.0, padding), db(type, block, 9.0, padding);
    Held da_log(type, {heads}, 0.0), ddt_bias(type, {heads}, 0.0);
    delta_gates_backward(stream, da, db, da_log, ddt_bias, dg, dbeta, a, b, a_log, dt_bias);
    return Arrays{da.values(), db.values(), da_log.values(), ddt_bias.values()};
  };
  op.reference = [=](const Arrays& in) {
    auto out = reference::delta_gates(in[0], in[1], in[2], in[3]);
    return Arrays{out.g, out.beta};
  };
  op.first_summed = 2;
  return op;
}

TEST(DeltaGates, ValuesAndGradients) {
  for (const int64_t tokens : sizes_and_none)
    for (const int64_t heads : sizes) {
      const Op op = gates_op(tokens, heads, tokens % 2 == 0 ? 3 : 0);
      const Arrays inputs = {random_array(tokens * heads, 1, 3.0),
                             random_array(tokens * heads, 2, 3.0), random_array(heads, 3),
                             random_array(heads, 4)};
      check_values(op, inputs);
      check_gradients(op, inputs);
    }
}

TEST(DeltaGates, SoftplusIsTheIdentityAbove20) {
  const Array a = {19.9, 20.0, 20.1, 90.0, 1000.0, -1000.0}, zero(6, 0.0), one(6, 1.0);
  const Op op = gates_op(1, 6, 0);
  const Arrays inputs = {a, zero, zero, zero};
  const Arrays out = op.forward(DType::float64, inputs);
  EXPECT_EQ(out[0][1], -std::log1p(std::exp(20.0)));
  EXPECT_EQ(out[0][2], -20.1);
  EXPECT_EQ(out[0][4], -1000.0);
  EXPECT_EQ(out[0][5], 0.0);
  const Array slopes = op.backward(DType::float64, inputs, {one, zero})[0];
  EXPECT_LT(slopes[0], 0);
  EXPECT_GT(slopes[0], -1);
  EXPECT_EQ(slopes[2], -1.0);
  EXPECT_EQ(slopes[5], 0.0);
  const Arrays single = op.forward(DType::float32, inputs);
  expect_close(single[0], out[0], 2 * 0x1p-24, "float32");
  EXPECT_EQ(single[0][5], 0.0);
}

TEST(DeltaGates, GradientsOfTheHeadsAreAddedTo) {
  Stream stream;
  const Arrays in = {random_array(195, 1), random_array(195, 2), random_array(3, 3),
                     random_array(3, 4)};
  const Arrays dout = {random_array(195, 5), random_array(195, 6)};
  const Arrays alone = gates_op(65, 3, 0).backward(DType::float64, in, dout);
  const std::vector<int64_t> block = {65, 3};
  constexpr DType type = DType::float64;
  Held a(type, block, in[0]), b(type, block, in[1]), a_log(type, {3}, in[2]);
  Held dt_bias(type, {3}, in[3]), dg(type, block, dout[0]), dbeta(type, block, dout[1]);
  Held da(type, block, 0.0), db(type, block, 0.0), da_log(type, {3}, 5.0);
  Held ddt_bias(type, {3}, 7.0);
  delta_gates_backward(stream, da, db, da_log, ddt_bias, dg, dbeta, a, b, a_log, dt_bias);
  for (int h = 0; h < 3; ++h) {  // one rounding of a sum of some tens
    EXPECT_NEAR(da_log.values()[h], 5 + alone[2][h], 64 * 0x1p-52);
    EXPECT_NEAR(ddt_bias.values()[h], 7 + alone[3][h], 64 * 0x1p-52);
  }
}

}  // namespace
}  // namespace longstraw::test
