// The gated delta rule: its gates, and the recurrence in chunks.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

#include <cstdint>

namespace longstraw {

/// g = -exp(A_log) softplus(a + dt_bias) (softplus(z) = z above 20), beta = sigmoid(b);
/// a, b, g, beta [tokens, heads] (row strides allowed on a and b); A_log, dt_bias [heads].
void delta_gates(Stream& stream, const Tensor& g, const Tensor& beta, const Tensor& a,
                 const Tensor& b, const Tensor& a_log, const Tensor& dt_bias);
/// da = -exp(A_log) slope(a + dt_bias) dg, where slope is sigmoid (1 above 20, as the value is the
/// identity there); db = dbeta beta (1 - beta); ddt_bias += sum over tokens of da, da_log += that
/// of dg g. da, db, a, b [tokens, heads] (row strides allowed); dg, dbeta likewise.
void delta_gates_backward(Stream& stream, const Tensor& da, const Tensor& db, const Tensor& da_log,
                          const Tensor& ddt_bias, const Tensor& dg, const Tensor& dbeta,
                          const Tensor& a, const Tensor& b, const Tensor& a_log,
                          const Tensor& dt_bias);

/// Which key head serves a value head: `first_value_head + h` divided by `values_per_key`, less
/// `first_key_head`. Lets a rank hold any contiguous range of value heads with the key heads they
/// need.
struct HeadMap {
  int64_t first_value_head = 0;
  int64_t first_key_head = 0;
  int64_t values_per_key = 1;
  int64_t key_head(int64_t local_value_head) const {
    return (first_value_head + local_value_head) / values_per_key - first_key_head;
  }
};

/// Tokens of a chunk; any value gives the same result up to rounding.
constexpr int64_t delta_chunk = 64;

/// Elements of workspace (of the compute type) for the two functions below. Backward keeps what a
/// forward scan leaves of every chunk, of one head at a time: 3 x 64 + 16 + 2 dv + dk dv / 64
/// elements a token.
int64_t delta_rule_workspace(int64_t tokens, int64_t dk, int64_t dv);
int64_t delta_rule_backward_workspace(int64_t tokens, int64_t dk, int64_t dv);

/// The gated delta rule over `tokens` in order, in chunks, for every local value head:
///     S <- e^g S;  d = beta (v - S^T k);  S <- S + k d^T;  o = S^T q
/// q, k [tokens, key_heads, dk] (normalised, q scaled), v, o [tokens, heads, dv], g, beta
/// [tokens, heads] (contiguous), g <= 0 without lower bound; state [heads, dk, dv] is read as the
/// state before the first token and written as the state after the last. q, k and v may each be
/// bfloat16 where the state is float32; the rest is of the type of the state, as is all arithmetic.
void delta_rule(Stream& stream, const Tensor& o, const Tensor& state, const Tensor& q,
                const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta,
                const HeadMap& map, const Tensor& workspace);
/// Backward. `state` is the state *before* the first token (not changed). dstate [heads, dk, dv] is
/// read as the gradient of the state after the last token and written as that of the state before
/// the first. Writes dq, dk (summed over the local value heads of a key head, in order; 0 for a key
/// head without any), dv, dg, dbeta. q, k, v and dout may each be bfloat16, as above.
void delta_rule_backward(Stream& stream, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                         const Tensor& dg, const Tensor& dbeta, const Tensor& dstate,
                         const Tensor& dout, const Tensor& state, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& g, const Tensor& beta, const HeadMap& map,
                         const Tensor& workspace);

}  // namespace longstraw
