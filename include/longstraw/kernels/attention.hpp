// Softmax attention of travelling queries over the pages that a rank keeps, and the merge of the
// ranks' partial results.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

#include <cstdint>
#include <span>

namespace longstraw {

/// Keys and values of one page: keys, values [tokens, kv_heads, dim] with their global positions,
/// ascending within the page and from page to page. `dkeys`, `dvalues` (same extents) are where
/// backward adds the gradient; empty tensors: none is wanted for this page.
struct KeyPage {
  Tensor keys;
  Tensor values;
  std::span<const int64_t> positions;
  Tensor dkeys;
  Tensor dvalues;
};

/// Elements of workspace (of the compute type) for the two functions below with pages of type
/// `keys`; bounded, whatever the number of queries and keys.
int64_t attention_workspace(int64_t queries, int64_t heads, int64_t kv_heads, int64_t dim,
                            DType keys = DType::float32);

/// Types: where lse is float32, q, dout and the keys and values of a page may each be bfloat16; the
/// rest, page gradients too, is of the type of lse. With a q of bfloat16, probabilities and
/// gradients of scores are rounded to it as operands of their products; the softmax and its sum are
/// float32. Pages of bfloat16 alone round nothing more.

/// For every query (position p_i, ascending) and head h: softmax over all keys at positions <= p_i
/// of scale q.k; head h uses kv head h / (heads / kv_heads). Writes out [queries, heads, dim]
/// (normalised) and lse [queries, heads] (natural log of the sum of exp of the scaled scores; -inf
/// and out = 0 where no key is visible, or there is no page). q [queries, heads, dim] and lse
/// contiguous. The result depends on how keys are cut into pages only by rounding; many tiny pages
/// are slow. Operations: 4 heads dim for each pair of a query and a key that it sees.
void attention(Stream& stream, const Tensor& out, const Tensor& lse, const Tensor& q,
               std::span<const int64_t> positions, std::span<const KeyPage> pages, double scale,
               const Tensor& workspace);

/// Given the *global* lse and delta = rowsum(dout o out) [queries, heads] and dout: writes this
/// rank's part of dq and adds to the pages' dkeys and dvalues, where there are. With p = exp(s -
/// lse) and ds = p o (dout v^T - delta): dv += p^T dout, dq = scale ds k, dk += scale ds^T q.
/// Operations: 6 heads dim for each visible pair, and 2 for each of dkeys and dvalues.
void attention_backward(Stream& stream, const Tensor& dq, const Tensor& dout, const Tensor& q,
                        const Tensor& lse, const Tensor& delta, std::span<const int64_t> positions,
                        std::span<const KeyPage> pages, double scale, const Tensor& workspace);

/// Merges partial results: outs [parts, queries, heads, dim], lses [parts, queries, heads] ->
/// out = sum_i e^{L_i - L} O_i, lse = logsumexp_i L_i, in the order of parts; 0 and -inf where
/// every L_i is -inf. All contiguous.
void attention_merge(Stream& stream, const Tensor& out, const Tensor& lse, const Tensor& outs,
                     const Tensor& lses);
/// delta [rows] = sum over dim of dout * out, both [rows, dim]; dout may be bfloat16 where the rest
/// is float32.
void row_dot(Stream& stream, const Tensor& delta, const Tensor& dout, const Tensor& out);

}  // namespace longstraw
