#include "longstraw/kernels/gemm.hpp"

#include "gemm/blas.hpp"
#include "gemm/stored.hpp"
#include "longstraw/core/field.hpp"

namespace longstraw {
namespace {

/// C = beta C, without reading C when beta = 0.
template <class T>
void scale(const Tensor& c, T beta) {
  if (beta == T(1)) return;
  for (int64_t i = 0; i < c.extent(0); ++i) {
    T* row = c.row<T>(i);
    for (int64_t j = 0; j < c.extent(1); ++j) row[j] = beta == T(0) ? T(0) : beta * row[j];
  }
}

bool is_stored(const Tensor& tensor) { return tensor.type() == DType::bfloat16; }

/// The product without its account.
void product(const Tensor& c, const Operand& a, const Operand& b, double alpha, double beta) {
  const int64_t m = a.rows(), n = b.columns(), k = a.columns();
  const DType type = compute_type(c.type());
  LONGSTRAW_ASSERT(compute_type(a.tensor.type()) == type && compute_type(b.tensor.type()) == type);
  LONGSTRAW_ASSERT(a.tensor.order() == 2 && b.tensor.order() == 2 && c.order() == 2);
  LONGSTRAW_ASSERT(b.rows() == k && c.extent(0) == m && c.extent(1) == n);
  LONGSTRAW_ASSERT(!is_stored(c) || beta == 0);
  for (const int64_t extent :
       {m, n, k, a.tensor.row_stride(), b.tensor.row_stride(), c.row_stride()})
    require(
        blas::fits(extent),
        "a matrix product has an extent or a row of {} elements (this BLAS counts up to 2^31 - 1) "
        "- use a smaller [parallel] block_tokens",
        extent);
  if (m == 0 || n == 0) return;
  if (is_stored(c) && k == 0) return clear(c);
  if (k > 0 && (is_stored(c) || is_stored(a.tensor) || is_stored(b.tensor)))
    return multiply_stored(c, a, b, static_cast<float>(alpha), static_cast<float>(beta));
  dispatch(type, [&]<class T>(T) {
    if (k == 0) return scale<T>(c, static_cast<T>(beta));
    blas::gemm<T>(a.transpose, b.transpose, m, n, k, static_cast<T>(alpha), a.tensor.data<T>(),
                  a.tensor.row_stride(), b.tensor.data<T>(), b.tensor.row_stride(),
                  static_cast<T>(beta), c.data<T>(), c.row_stride());
  });
}

double product_operations(const Tensor& c, int64_t inner) {
  return 2.0 * static_cast<double>(c.size()) * static_cast<double>(inner);
}

bool wanted(const Tensor& gradient) { return gradient.order() > 0; }

}  // namespace

void gemm(Stream& stream, const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
          Transpose transpose_b, double alpha, double beta) {
  stream.count("longstraw::gemm::product",
               product_operations(c, Operand{a, transpose_a}.columns()));
  product(c, {a, transpose_a}, {b, transpose_b}, alpha, beta);
}

void linear(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& w) {
  stream.count("longstraw::linear::forward", product_operations(y, x.extent(1)));
  product(y, {x, Transpose::no}, {w, Transpose::yes}, 1.0, 0.0);
}

void linear_backward(Stream& stream, const Tensor& dx, const Tensor& dw, const Tensor& dy,
                     const Tensor& x, const Tensor& w, bool accumulate_dx) {
  if (wanted(dx)) {
    stream.count("longstraw::linear::backward_input", product_operations(dx, dy.extent(1)));
    product(dx, {dy, Transpose::no}, {w, Transpose::no}, 1.0, accumulate_dx ? 1.0 : 0.0);
  }
  if (wanted(dw)) {
    stream.count("longstraw::linear::backward_weight", product_operations(dw, dy.extent(0)));
    product(dw, {dy, Transpose::yes}, {x, Transpose::no}, 1.0, 1.0);
  }
}

}  // namespace longstraw
