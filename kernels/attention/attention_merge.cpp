#include "longstraw/kernels/attention.hpp"

#include "loops.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longstraw {

namespace {

/// Log of the sum of the exponentials of one row's parts; -inf where every part is.
template <class T>
T merged_lse(const T* lses, int64_t parts, int64_t rows) {
  T top = -std::numeric_limits<T>::infinity();
  for (int64_t i = 0; i < parts; ++i) top = std::max(top, lses[i * rows]);
  if (top == -std::numeric_limits<T>::infinity()) return top;
  T sum = 0;
  for (int64_t i = 0; i < parts; ++i) sum += std::exp(lses[i * rows] - top);
  return top + std::log(sum);
}

template <class T>
void merge(const Tensor& out, const Tensor& lse, const Tensor& outs, const Tensor& lses) {
  const int64_t parts = outs.extent(0), rows = lse.size(), dim = outs.extent(3);
  for (int64_t row = 0; row < rows; ++row) {
    const T total = merged_lse(lses.data<T>() + row, parts, rows);
    T* target = out.data<T>() + row * dim;
    std::fill_n(target, dim, T(0));
    for (int64_t i = 0; i < parts; ++i) {
      const T part = lses.data<T>()[i * rows + row];
      if (part == -std::numeric_limits<T>::infinity()) continue;  // -inf - -inf is no weight
      const T weight = std::exp(part - total);
      const T* source = outs.data<T>() + (i * rows + row) * dim;
      for (int64_t j = 0; j < dim; ++j) target[j] += weight * source[j];
    }
    lse.data<T>()[row] = total;
  }
}

template <class T, class S>
void dot_rows(const Tensor& delta, const Tensor& dout, const Tensor& out) {
  const int64_t rows = out.extent(0), dim = out.extent(1);
  for (int64_t row = 0; row < rows; ++row) {
    const S* a = dout.row<S>(row);
    const T* b = out.row<T>(row);
    delta.data<T>()[row] = sum_over<T>(dim, [=](int64_t j) { return static_cast<T>(a[j]) * b[j]; });
  }
}

}  // namespace

void attention_merge(Stream& stream, const Tensor& out, const Tensor& lse, const Tensor& outs,
                     const Tensor& lses) {
  LONGSTRAW_ASSERT(outs.order() == 4 && outs.contiguous() && lses.contiguous());
  LONGSTRAW_ASSERT(out.contiguous() && lse.contiguous() && out.type() == outs.type());
  LONGSTRAW_ASSERT(out.size() * outs.extent(0) == outs.size());
  LONGSTRAW_ASSERT(lse.size() * outs.extent(0) == lses.size());
  stream.count("longstraw::attention::merge", 2.0 * static_cast<double>(outs.size()));
  for_each("longstraw::attention::merge", 1, [&](int64_t) {
    dispatch(out.type(), [&]<class T>(T) { merge<T>(out, lse, outs, lses); });
  });
}

void row_dot(Stream& stream, const Tensor& delta, const Tensor& dout, const Tensor& out) {
  LONGSTRAW_ASSERT(out.order() == 2 && dout.order() == 2 && delta.size() == out.extent(0));
  LONGSTRAW_ASSERT(delta.contiguous() && dout.extent(1) == out.extent(1));
  stream.count("longstraw::attention::row_dot", 2.0 * static_cast<double>(out.size()));
  for_each("longstraw::attention::row_dot", 1, [&](int64_t) {
    dispatch(out.type(), [&]<class T>(T) {
      dispatch_stored<T>(dout.type(), [&]<class S>(S) { dot_rows<T, S>(delta, dout, out); });
    });
  });
}

}  // namespace longstraw
