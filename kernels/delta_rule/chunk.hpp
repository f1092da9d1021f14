// One chunk of the gated delta rule for one value head: its decay factors, the matrices inside the
// chunk, and the triangular system that turns values into what is written to the state.
//
// With gam_i = g_0 + ... + g_i, D = diag(beta), n tokens and S the state before the chunk:
//   Gam_ij = exp(gam_i - gam_j) for i >= j, else 0
//   P = (Q K^T) o Gam,  N = strictly lower part of (K K^T) o Gam
//   (I + N D) E = V - e^gam K S      error of what the state predicts for each value
//   V' = D E                         (V' and S as in the chunked rule of Yang et al., "Gated Delta
//                                     Networks", with the solve for W = T (beta e^gam K) saved:
//                                     V' = U - W S is solved as one system)
//   O = e^gam Q S + P V',  S <- e^gam_n S + K^T (e^(gam_n - gam) V')
// Only differences gam_i - gam_j with i >= j are raised to powers: e^-gam would overflow.
#pragma once

#include "gemm/blas.hpp"
#include "longstraw/kernels/delta_rule.hpp"
#include "math.hpp"
#include "storage.hpp"

#include <algorithm>

namespace longstraw::delta_rule_chunk {

/// Rows of the diagonal blocks of the triangular system, which are inverted; the rest is products.
constexpr int64_t block = 16;
constexpr int64_t matrix_size = delta_chunk * delta_chunk;
constexpr int64_t inverse_size = delta_chunk * block;

/// Powers of e of one chunk. The sums of g are kept in double: g may be -50 a token, and
/// differences between late sums must not lose the small g of neighbours.
template <class T>
struct Decay {
  double sum[delta_chunk];  ///< gam
  T start[delta_chunk];     ///< e^gam_i, from the chunk's start
  T end[delta_chunk];       ///< e^(gam_n - gam_i), to the chunk's end
  T whole;                  ///< e^gam_n

  Decay(const T* g, int64_t stride, int64_t n) {
    double total = 0;
    for (int64_t i = 0; i < n; ++i) sum[i] = total += static_cast<double>(g[i * stride]);
    for (int64_t i = 0; i < n; ++i) start[i] = math::exp(static_cast<T>(sum[i]));
    for (int64_t i = 0; i < n; ++i) end[i] = math::exp(static_cast<T>(total - sum[i]));
    whole = math::exp(static_cast<T>(total));
  }
};

/// Tokens [first, first + n) of rows [tokens, heads, dim], as a matrix of one head.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
  Rows(const Tensor& tensor, int64_t first, int64_t head)
      : data(tensor.row<T>(first) + head * tensor.extent(2)), stride(tensor.row_stride()) {}
  T* operator[](int64_t i) const { return data + i * stride; }
};

/// Tokens [first, first + n) of one head of `from` [tokens, heads, dim], of T or stored in
/// bfloat16, as n contiguous rows.
template <class T>
void pack(T* to, const Tensor& from, int64_t first, int64_t head, int64_t n) {
  const int64_t dim = from.extent(2);
  dispatch_stored<T>(from.type(), [&]<class S>(S) {
    const Rows<S> rows(from, first, head);
    for (int64_t i = 0; i < n; ++i) convert_row(to + i * dim, rows[i], dim);
  });
}

/// rhs = V - e^gam rhs, of the same tokens and head of v.
template <class T>
void subtract_from_values(T* rhs, const Tensor& v, int64_t first, int64_t head,
                          const Decay<T>& decay, int64_t n) {
  const int64_t dv = v.extent(2);
  dispatch_stored<T>(v.type(), [&]<class S>(S) {
    const Rows<S> values(v, first, head);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < dv; ++c)
        rhs[i * dv + c] = static_cast<T>(values[i][c]) - decay.start[i] * rhs[i * dv + c];
  });
}

/// products [2 n, n] = [Q; K] K^T.
template <class T>
void multiply_keys(T* products, const T* qk, int64_t n, int64_t dk) {
  blas::gemm<T>(Transpose::no, Transpose::yes, 2 * n, n, dk, 1, qk, dk, qk + n * dk, dk, 0,
                products, n);
}

/// Gam, P and N [n, n] from [Q; K] K^T.
template <class T>
void weigh(T* gamma, T* p, T* strict, const T* products, const Decay<T>& decay, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T *gamma_row = gamma + i * n, *p_row = p + i * n, *strict_row = strict + i * n;
    const T *qk_row = products + i * n, *kk_row = products + (n + i) * n;
    for (int64_t j = 0; j <= i; ++j)
      gamma_row[j] = math::exp(static_cast<T>(decay.sum[i] - decay.sum[j]));
    std::fill(gamma_row + i + 1, gamma_row + n, T(0));
    for (int64_t j = 0; j < n; ++j) p_row[j] = qk_row[j] * gamma_row[j];
    for (int64_t j = 0; j < n; ++j) strict_row[j] = kk_row[j] * gamma_row[j];
    strict_row[i] = 0;
  }
}

/// Inverses of the diagonal blocks of I + N D, each [block, block] with zeros above the diagonal.
template <class T>
void invert_diagonal(T* inverse, const T* strict, const T* beta, int64_t beta_stride, int64_t n) {
  for (int64_t first = 0; first < n; first += block) {
    const int64_t rows = std::min(block, n - first);
    T* to = inverse + first * block;
    for (int64_t i = 0; i < rows; ++i) {
      T row[block] = {};
      row[i] = 1;
      for (int64_t j = 0; j < i; ++j) {
        const T factor = strict[(first + i) * n + first + j] * beta[(first + j) * beta_stride];
        for (int64_t c = 0; c < block; ++c) row[c] -= factor * to[j * block + c];
      }
      std::copy_n(row, block, to + i * block);
    }
  }
}

/// Solves (I + N D) E = `rhs` [n, dv] (overwritten) and writes V' = D E.
template <class T>
void solve(T* error, T* value, T* rhs, const T* strict, const T* inverse, const T* beta,
           int64_t beta_stride, int64_t n, int64_t dv) {
  for (int64_t first = 0; first < n; first += block) {
    const int64_t rows = std::min(block, n - first);
    T* from = rhs + first * dv;
    if (first > 0)
      blas::gemm<T>(Transpose::no, Transpose::no, rows, dv, first, -1, strict + first * n, n, value,
                    dv, 1, from, dv);
    blas::gemm<T>(Transpose::no, Transpose::no, rows, dv, rows, 1, inverse + first * block, block,
                  from, dv, 0, error + first * dv, dv);
    for (int64_t i = first; i < first + rows; ++i)
      for (int64_t c = 0; c < dv; ++c)
        value[i * dv + c] = beta[i * beta_stride] * error[i * dv + c];
  }
}

/// Backward of `solve`: given `dvalue` = dV' [n, dv], writes `drhs` = H with (I + D N^T) H = D dV',
/// and turns dvalue into G = dV' - N^T H (whose product with E is the gradient of beta). `scaled`
/// [block, dv] is workspace.
template <class T>
void solve_transposed(T* drhs, T* dvalue, T* scaled, const T* strict, const T* inverse,
                      const T* beta, int64_t beta_stride, int64_t n, int64_t dv) {
  for (int64_t first = (n - 1) / block * block; first >= 0; first -= block) {
    const int64_t rows = std::min(block, n - first), after = first + rows;
    T* to = dvalue + first * dv;
    if (after < n)
      blas::gemm<T>(Transpose::yes, Transpose::no, rows, dv, n - after, -1,
                    strict + after * n + first, n, drhs + after * dv, dv, 1, to, dv);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < dv; ++c)
        scaled[i * dv + c] = beta[(first + i) * beta_stride] * to[i * dv + c];
    blas::gemm<T>(Transpose::yes, Transpose::no, rows, dv, rows, 1, inverse + first * block, block,
                  scaled, dv, 0, drhs + first * dv, dv);
    blas::gemm<T>(Transpose::yes, Transpose::no, rows, dv, rows, -1, strict + first * n + first, n,
                  drhs + first * dv, dv, 1, to, dv);
  }
}

/// Extents that both directions share, from checked arguments.
struct Shape {
  int64_t tokens, key_heads, heads, dk, dv;
};
Shape checked_shape(const Tensor& state, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& g, const Tensor& beta, const HeadMap& map);

}  // namespace longstraw::delta_rule_chunk
