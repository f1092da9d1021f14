#include "longstraw/kernels/delta_rule.hpp"

#include "delta_rule/chunk.hpp"
#include "loops.hpp"

namespace longstraw {

namespace {

using namespace delta_rule_chunk;

template <class T>
struct Scratch {
  T *qk, *products;                 // of a key head
  T *gamma, *p, *strict, *inverse;  // of a value head, as are those below
  T *read, *error, *value;          // [Q; K] S, E, V'

  Scratch(const Tensor& workspace, const Shape& shape) {
    qk = workspace.data<T>();
    products = qk + 2 * delta_chunk * shape.dk;
    gamma = products + 2 * matrix_size;
    p = gamma + matrix_size;
    strict = p + matrix_size;
    inverse = strict + matrix_size;
    read = inverse + inverse_size;
    error = read + 2 * delta_chunk * shape.dv;
    value = error + delta_chunk * shape.dv;
  }
};

template <class T>
struct Forward {
  const Tensor &o, &state, &v, &g, &beta;
  const Shape& shape;
  Scratch<T> scratch;

  /// Tokens [first, first + n) of one value head, whose key head is in scratch.qk and products.
  void chunk(int64_t head, int64_t first, int64_t n) const {
    const auto [qk, products, gamma, p, strict, inverse, read, error, value] = scratch;
    const int64_t dk = shape.dk, dv = shape.dv, heads = shape.heads;
    const T* beta_rows = beta.data<T>() + first * heads + head;
    const Decay<T> decay(g.data<T>() + first * heads + head, heads, n);
    T* s = state.row<T>(head);

    weigh(gamma, p, strict, products, decay, n);
    invert_diagonal(inverse, strict, beta_rows, heads, n);
    blas::gemm<T>(Transpose::no, Transpose::no, 2 * n, dv, dk, 1, qk, dk, s, dv, 0, read, dv);
    const Rows<T> out(o, first, head);
    T* rhs = read + n * dv;
    for (int64_t i = 0; i < n; ++i) {
      const T factor = decay.start[i];
      for (int64_t c = 0; c < dv; ++c) out[i][c] = factor * read[i * dv + c];
    }
    subtract_from_values(rhs, v, first, head, decay, n);
    solve(error, value, rhs, strict, inverse, beta_rows, heads, n, dv);
    blas::gemm<T>(Transpose::no, Transpose::no, n, dv, n, 1, p, n, value, dv, 1, out.data,
                  out.stride);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < dv; ++c) value[i * dv + c] *= decay.end[i];
    blas::gemm<T>(Transpose::yes, Transpose::no, dk, dv, n, 1, qk + n * dk, dk, value, dv,
                  decay.whole, s, dv);
  }

  void run(const Tensor& q, const Tensor& k, const HeadMap& map) const {
    for (int64_t head = 0, end = 0; head < shape.heads; head = end) {
      const int64_t key_head = map.key_head(head);
      while (end < shape.heads && map.key_head(end) == key_head) ++end;
      for (int64_t first = 0; first < shape.tokens; first += delta_chunk) {
        const int64_t n = std::min(delta_chunk, shape.tokens - first);
        pack(scratch.qk, q, first, key_head, n);
        pack(scratch.qk + n * shape.dk, k, first, key_head, n);
        multiply_keys(scratch.products, scratch.qk, n, shape.dk);
        for (int64_t h = head; h < end; ++h) chunk(h, first, n);
      }
    }
  }
};

}  // namespace

int64_t delta_rule_workspace(int64_t, int64_t dk, int64_t dv) {
  return delta_chunk * (2 * dk + 4 * dv) + 5 * matrix_size + inverse_size;
}

void delta_rule(Stream& stream, const Tensor& o, const Tensor& state, const Tensor& q,
                const Tensor& k, const Tensor& v, const Tensor& g, const Tensor& beta,
                const HeadMap& map, const Tensor& workspace) {
  const Shape shape = checked_shape(state, q, k, v, g, beta, map);
  const auto dk = static_cast<double>(shape.dk), dv = static_cast<double>(shape.dv);
  stream.count("longstraw::delta_rule::forward",
               static_cast<double>(shape.tokens * shape.heads) *
                   (2.0 * delta_chunk * (3 * dk + 2 * dv) + 6 * dk * dv));
  LONGSTRAW_ASSERT(o.type() == state.type() && o.order() == 3 && o.size() == v.size() &&
                   o.extent(1) == shape.heads);
  LONGSTRAW_ASSERT(workspace.size() >= delta_rule_workspace(shape.tokens, shape.dk, shape.dv));
  for_each("longstraw::delta_rule::forward", 1, [&](int64_t) {
    dispatch(state.type(), [&]<class T>(T) {
      Forward<T>{o, state, v, g, beta, shape, Scratch<T>(workspace, shape)}.run(q, k, map);
    });
  });
}

}  // namespace longstraw
