#include "delta_rule/chunk.hpp"
#include "loops.hpp"

namespace longstraw {

namespace {

using namespace delta_rule_chunk;

/// What the forward scan leaves of one chunk for the way back. `value` ends where `state` begins,
/// so that [V'; S] is one matrix.
template <class T>
struct Saved {
  T *gamma, *p, *strict, *inverse, *error, *value, *state;

  static int64_t size(int64_t dk, int64_t dv) {
    return 3 * matrix_size + inverse_size + 2 * delta_chunk * dv + dk * dv;
  }
  Saved(T* data, int64_t n, int64_t dv) {
    gamma = data;
    p = gamma + matrix_size;
    strict = p + matrix_size;
    inverse = strict + matrix_size;
    error = inverse + inverse_size;
    state = error + 2 * delta_chunk * dv;
    value = state - n * dv;
  }
};

template <class T>
struct Scratch {
  T* qk;        ///< [Q; K] [2 n, dk]
  T* scaled;    ///< [e^gam Q; -e^gam K] [2 n, dk]
  T* dqk;       ///< [dQ; dK] [2 n, dk]
  T* dend;      ///< V' dS^T [n, dk]
  T* products;  ///< [dO; H] [V'; S]^T [2 n, n + dk]; in the scan [Q; K] K^T
  T* inner;     ///< [dP o Gam; dN o Gam] [2 n, n]
  T* dvalue;    ///< dV', then G [n, dv]
  T* outer;     ///< [dO; H] [2 n, dv]; in the scan [Q; K] S
  T* saved;     ///< of every chunk

  static int64_t size(int64_t dk, int64_t dv) {
    return delta_chunk * (7 * dk + 2 * (delta_chunk + dk) + 2 * delta_chunk + 3 * dv) + block * dv;
  }
  Scratch(const Tensor& workspace, const Shape& shape) {
    const int64_t rows = 2 * delta_chunk;
    qk = workspace.data<T>();
    scaled = qk + rows * shape.dk;
    dqk = scaled + rows * shape.dk;
    dend = dqk + rows * shape.dk;
    products = dend + delta_chunk * shape.dk;
    inner = products + rows * (delta_chunk + shape.dk);
    dvalue = inner + rows * delta_chunk;
    outer = dvalue + delta_chunk * shape.dv;
    saved = outer + (rows + block) * shape.dv;
  }
};

/// Sum of a[i] b[i].
template <class T>
T dot(const T* a, const T* b, int64_t n) {
  return sum_over<T>(n, [=](int64_t i) { return a[i] * b[i]; });
}

template <class T>
struct Backward {
  const Tensor &dq, &dk, &dv, &dg, &dbeta, &dstate;
  const Tensor &dout, &state, &q, &k, &v, &g, &beta;
  const HeadMap& map;
  const Shape& shape;
  Scratch<T> scratch;

  int64_t length(int64_t first) const { return std::min(delta_chunk, shape.tokens - first); }
  Saved<T> saved(int64_t first) const {
    const int64_t size = Saved<T>::size(shape.dk, shape.dv);
    return {scratch.saved + first / delta_chunk * size, length(first), shape.dv};
  }
  Decay<T> decay(int64_t head, int64_t first) const {
    return {g.data<T>() + first * shape.heads + head, shape.heads, length(first)};
  }
  const T* betas(int64_t head, int64_t first) const {
    return beta.data<T>() + first * shape.heads + head;
  }

  /// Forward over one chunk; `next` is where the state after it goes.
  void scan(int64_t head, int64_t first, T* next) const {
    const int64_t n = length(first), ck = shape.dk, cv = shape.dv;
    const Saved<T> keep = saved(first);
    const Decay<T> factors = decay(head, first);
    pack(scratch.qk, q, first, map.key_head(head), n);
    pack(scratch.qk + n * ck, k, first, map.key_head(head), n);
    multiply_keys(scratch.products, scratch.qk, n, ck);
    weigh(keep.gamma, keep.p, keep.strict, scratch.products, factors, n);
    invert_diagonal(keep.inverse, keep.strict, betas(head, first), shape.heads, n);
    T *rhs = scratch.dvalue, *kept = scratch.outer, *keys = scratch.qk + n * ck;
    blas::gemm<T>(Transpose::no, Transpose::no, n, cv, ck, 1, keys, ck, keep.state, cv, 0, rhs, cv);
    subtract_from_values(rhs, v, first, head, factors, n);
    solve(keep.error, keep.value, rhs, keep.strict, keep.inverse, betas(head, first), shape.heads,
          n, cv);
    if (next == nullptr) return;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < cv; ++c) kept[i * cv + c] = factors.end[i] * keep.value[i * cv + c];
    std::copy_n(keep.state, ck * cv, next);
    blas::gemm<T>(Transpose::yes, Transpose::no, ck, cv, n, 1, keys, ck, kept, cv, factors.whole,
                  next, cv);
  }

  /// dV' and through the triangular system: [dO; H] in scratch.outer, G in scratch.dvalue, dv,
  /// dbeta.
  void through_solve(int64_t head, int64_t first, const Decay<T>& factors) const {
    const int64_t n = length(first), ck = shape.dk, cv = shape.dv;
    const Saved<T> keep = saved(first);
    const T *keys = scratch.qk + n * ck, *ds = dstate.row<T>(head);
    T *d = scratch.dvalue, *h = scratch.outer + n * cv;
    const Rows<T> dv_rows(dv, first, head);
    pack(scratch.outer, dout, first, head, n);
    blas::gemm<T>(Transpose::no, Transpose::no, n, cv, ck, 1, keys, ck, ds, cv, 0, d, cv);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < cv; ++c) d[i * cv + c] *= factors.end[i];
    blas::gemm<T>(Transpose::yes, Transpose::no, n, cv, n, 1, keep.p, n, scratch.outer, cv, 1, d,
                  cv);
    solve_transposed(h, d, scratch.outer + 2 * delta_chunk * cv, keep.strict, keep.inverse,
                     betas(head, first), shape.heads, n, cv);
    T* dbeta_rows = dbeta.data<T>() + first * shape.heads + head;
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(h + i * cv, cv, dv_rows[i]);
      dbeta_rows[i * shape.heads] = dot(d + i * cv, keep.error + i * cv, cv);
    }
  }

  /// inner = [dP o Gam; dN o Gam] from [dO; H] V'^T; adds rowsum(X) - colsum(X) to dgam, where
  /// X = dP o P + dN o N.
  void through_matrices(double* dgam, const Saved<T>& keep, int64_t n) const {
    const int64_t width = n + shape.dk;
    T column[delta_chunk] = {};
    for (int64_t i = 0; i < n; ++i) {
      const T *dp = scratch.products + i * width, *dn = scratch.products + (n + i) * width;
      const T *p = keep.p + i * n, *strict = keep.strict + i * n, *gamma = keep.gamma + i * n;
      T *m = scratch.inner + i * n, *b = scratch.inner + (n + i) * n;
      T x[delta_chunk];
      for (int64_t j = 0; j < n; ++j) x[j] = dp[j] * p[j] - dn[j] * strict[j];
      x[i] = 0;  // in row and column alike: left out, so that it does not drown the small rest
      for (int64_t j = 0; j < n; ++j) column[j] += x[j];
      for (int64_t j = 0; j < n; ++j) m[j] = dp[j] * gamma[j];
      for (int64_t j = 0; j < n; ++j) b[j] = -dn[j] * gamma[j];
      b[i] = 0;  // N has no diagonal
      dgam[i] += static_cast<double>(sum_over<T>(n, [&](int64_t j) { return x[j]; }));
    }
    for (int64_t i = 0; i < n; ++i) dgam[i] -= static_cast<double>(column[i]);
  }

  /// The row-wise part of dq and dk in scratch.dqk, and what it gives to dgam.
  void through_rows(double* dgam, const Decay<T>& factors, int64_t n) const {
    const int64_t ck = shape.dk, width = n + ck;
    for (int64_t i = 0; i < n; ++i) {
      const T* dread_q = scratch.products + i * width + n;
      const T *dread_k = scratch.products + (n + i) * width + n, *dend = scratch.dend + i * ck;
      const T *qi = scratch.qk + i * ck, *ki = scratch.qk + (n + i) * ck;
      T *dqi = scratch.dqk + i * ck, *dki = scratch.dqk + (n + i) * ck;
      T *sq = scratch.scaled + i * ck, *sk = scratch.scaled + (n + i) * ck;
      const T start = factors.start[i], end = factors.end[i];
      for (int64_t c = 0; c < ck; ++c) dqi[c] = start * dread_q[c];
      for (int64_t c = 0; c < ck; ++c) dki[c] = end * dend[c] - start * dread_k[c];
      for (int64_t c = 0; c < ck; ++c) sq[c] = start * qi[c];
      for (int64_t c = 0; c < ck; ++c) sk[c] = -start * ki[c];
      dgam[i] += static_cast<double>(dot(dqi, qi, ck) - start * dot(dread_k, ki, ck));
      if (i == n - 1) continue;  // the last token reaches the end without decay
      const auto to_end = static_cast<double>(end * dot(dend, ki, ck));
      dgam[i] -= to_end;
      dgam[n - 1] += to_end;
    }
  }

  void chunk(int64_t head, int64_t first) const {
    const int64_t n = length(first), ck = shape.dk, cv = shape.dv, key_head = map.key_head(head);
    const Saved<T> keep = saved(first);
    const Decay<T> factors = decay(head, first);
    T* ds = dstate.row<T>(head);
    pack(scratch.qk, q, first, key_head, n);
    pack(scratch.qk + n * ck, k, first, key_head, n);
    through_solve(head, first, factors);
    blas::gemm<T>(Transpose::no, Transpose::yes, 2 * n, n + ck, cv, 1, scratch.outer, cv,
                  keep.value, cv, 0, scratch.products, n + ck);
    blas::gemm<T>(Transpose::no, Transpose::yes, n, ck, cv, 1, keep.value, cv, ds, cv, 0,
                  scratch.dend, ck);
    double dgam[delta_chunk] = {};
    through_matrices(dgam, keep, n);
    through_rows(dgam, factors, n);
    dgam[n - 1] += static_cast<double>(factors.whole * dot(ds, keep.state, ck * cv));

    T* dkeys = scratch.dqk + n * ck;
    blas::gemm<T>(Transpose::no, Transpose::no, 2 * n, ck, n, 1, scratch.inner, n,
                  scratch.qk + n * ck, ck, 1, scratch.dqk, ck);
    blas::gemm<T>(Transpose::yes, Transpose::no, n, ck, 2 * n, 1, scratch.inner, n, scratch.qk, ck,
                  1, dkeys, ck);
    blas::gemm<T>(Transpose::yes, Transpose::no, ck, cv, 2 * n, 1, scratch.scaled, ck,
                  scratch.outer, cv, factors.whole, ds, cv);
    const Rows<T> dq_rows(dq, first, key_head), dk_rows(dk, first, key_head);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < ck; ++c) dq_rows[i][c] += scratch.dqk[i * ck + c];
      for (int64_t c = 0; c < ck; ++c) dk_rows[i][c] += dkeys[i * ck + c];
    }
    T* dg_rows = dg.data<T>() + first * shape.heads + head;
    double total = 0;
    for (int64_t i = n - 1; i >= 0; --i)
      dg_rows[i * shape.heads] = static_cast<T>(total += dgam[i]);
  }

  void run() const {
    for (int64_t t = 0; t < shape.tokens; ++t) {
      std::fill_n(dq.row<T>(t), shape.key_heads * shape.dk, T(0));
      std::fill_n(dk.row<T>(t), shape.key_heads * shape.dk, T(0));
    }
    if (shape.tokens == 0) return;
    const int64_t last = (shape.tokens - 1) / delta_chunk * delta_chunk;
    for (int64_t head = 0; head < shape.heads; ++head) {
      std::copy_n(state.row<T>(head), shape.dk * shape.dv, saved(0).state);
      for (int64_t first = 0; first <= last; first += delta_chunk)
        scan(head, first, first < last ? saved(first + delta_chunk).state : nullptr);
      for (int64_t first = last; first >= 0; first -= delta_chunk) chunk(head, first);
    }
  }
};

}  // namespace

int64_t delta_rule_backward_workspace(int64_t tokens, int64_t dk, int64_t dv) {
  const int64_t chunks = (tokens + delta_chunk - 1) / delta_chunk;
  return Scratch<float>::size(dk, dv) + chunks * Saved<float>::size(dk, dv);
}

void delta_rule_backward(Stream& stream, const Tensor& dq, const Tensor& dk, const Tensor& dv,
                         const Tensor& dg, const Tensor& dbeta, const Tensor& dstate,
                         const Tensor& dout, const Tensor& state, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& g, const Tensor& beta, const HeadMap& map,
                         const Tensor& workspace) {
  const Shape shape = checked_shape(state, q, k, v, g, beta, map);
  const auto ck = static_cast<double>(shape.dk), cv = static_cast<double>(shape.dv);
  constexpr double length = delta_chunk;
  stream.count("longstraw::delta_rule::backward",
               static_cast<double>(shape.tokens * shape.heads) *
                   (16 * length * ck + 10 * length * cv + 4 * length * length + 16 * ck * cv));
  LONGSTRAW_ASSERT(dq.order() == 3 && dq.size() == q.size() && dk.size() == k.size());
  LONGSTRAW_ASSERT(dk.order() == 3 && dv.order() == 3 && dv.size() == v.size());
  LONGSTRAW_ASSERT(dout.order() == 3 && dout.size() == v.size() && dstate.size() == state.size());
  LONGSTRAW_ASSERT(compute_type(dout.type()) == state.type() && dq.type() == state.type());
  LONGSTRAW_ASSERT(dk.type() == state.type() && dv.type() == state.type());
  LONGSTRAW_ASSERT(dg.contiguous() && dg.size() == g.size());
  LONGSTRAW_ASSERT(dbeta.contiguous() && dbeta.size() == beta.size());
  LONGSTRAW_ASSERT(workspace.size() >=
                   delta_rule_backward_workspace(shape.tokens, shape.dk, shape.dv));
  for_each("longstraw::delta_rule::backward", 1, [&](int64_t) {
    dispatch(state.type(), [&]<class T>(T) {
      Backward<T>{dq, dk, dv, dg, dbeta, dstate, dout,  state,
                  q,  k,  v,  g,  beta,  map,    shape, Scratch<T>(workspace, shape)}
          .run();
    });
  });
}

}  // namespace longstraw
