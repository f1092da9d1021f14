#include "longstraw/kernels/gemm.hpp"

#include "gemm/blas.hpp"

namespace longstraw {
namespace {

/// A matrix as the product sees it: extents after the transposition.
struct Operand {
  Operand(const Tensor& tensor, Transpose transpose)
      : rows(tensor.extent(transpose == Transpose::yes ? 1 : 0)),
        columns(tensor.extent(transpose == Transpose::yes ? 0 : 1)) {}
  int64_t rows;
  int64_t columns;
};

/// C = beta C, without reading C when beta = 0.
template <class T>
void scale(const Tensor& c, T beta) {
  if (beta == T(1)) return;
  for (int64_t i = 0; i < c.extent(0); ++i) {
    T* row = c.row<T>(i);
    for (int64_t j = 0; j < c.extent(1); ++j) row[j] = beta == T(0) ? T(0) : beta * row[j];
  }
}

/// The product without its account.
void product(const Tensor& c, const Tensor& a, Transpose ta, const Tensor& b, Transpose tb,
             double alpha, double beta) {
  const Operand op_a(a, ta), op_b(b, tb);
  const int64_t m = op_a.rows, n = op_b.columns, k = op_a.columns;
  LONGSTRAW_ASSERT(a.type() == c.type() && b.type() == c.type());
  LONGSTRAW_ASSERT(a.order() == 2 && b.order() == 2 && c.order() == 2);
  LONGSTRAW_ASSERT(op_b.rows == k && c.extent(0) == m && c.extent(1) == n);
  for (const int64_t extent : {m, n, k, a.row_stride(), b.row_stride(), c.row_stride()})
    require(
        blas::fits(extent),
        "a matrix product has an extent or a row of {} elements (this BLAS counts up to 2^31 - 1) "
        "- use a smaller [parallel] block_tokens",
        extent);
  if (m == 0 || n == 0) return;
  dispatch(c.type(), [&]<class T>(T) {
    if (k == 0) return scale<T>(c, static_cast<T>(beta));
    blas::gemm<T>(ta, tb, m, n, k, static_cast<T>(alpha), a.data<T>(), a.row_stride(), b.data<T>(),
                  b.row_stride(), static_cast<T>(beta), c.data<T>(), c.row_stride());
  });
}

double product_operations(const Tensor& c, int64_t inner) {
  return 2.0 * static_cast<double>(c.size()) * static_cast<double>(inner);
}

bool wanted(const Tensor& gradient) { return gradient.order() > 0; }

}  // namespace

void gemm(Stream& stream, const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
          Transpose transpose_b, double alpha, double beta) {
  stream.count("longstraw::gemm::product", product_operations(c, Operand(a, transpose_a).columns));
  product(c, a, transpose_a, b, transpose_b, alpha, beta);
}

void linear(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& w) {
  stream.count("longstraw::linear::forward", product_operations(y, x.extent(1)));
  product(y, x, Transpose::no, w, Transpose::yes, 1.0, 0.0);
}

void linear_backward(Stream& stream, const Tensor& dx, const Tensor& dw, const Tensor& dy,
                     const Tensor& x, const Tensor& w, bool accumulate_dx) {
  if (wanted(dx)) {
    stream.count("longstraw::linear::backward_input", product_operations(dx, dy.extent(1)));
    product(dx, dy, Transpose::no, w, Transpose::no, 1.0, accumulate_dx ? 1.0 : 0.0);
  }
  if (wanted(dw)) {
    stream.count("longstraw::linear::backward_weight", product_operations(dw, dy.extent(0)));
    product(dw, dy, Transpose::yes, x, Transpose::no, 1.0, 1.0);
  }
}

}  // namespace longstraw
