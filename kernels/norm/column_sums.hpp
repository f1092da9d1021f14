// The order in which the backward of a norm walks its rows, so that each row is read from memory
// once and the weight gradient, a sum over all rows, is accurate and the same on every run.
// Internal to the kernels.
#pragma once

#include "loops.hpp"

namespace longstraw {

/// Sums over rows of up to `window` columns from `first_column` on: 16 rows are summed in T, these
/// sums in double, always in the order of rows. So the result does not depend on the number of
/// threads, and its rounding hardly grows with the number of rows.
class ColumnSums {
 public:
  static constexpr int64_t window = 8192;

  ColumnSums(int64_t first_column, int64_t columns) : first_(first_column), columns_(columns) {
    std::fill(sums_, sums_ + columns_, 0.0);
  }

  /// Adds rows [begin, end); term(row)(column) is what they consist of.
  template <class T, class Term>
  void add_rows(const char* label, int64_t begin, int64_t end, const Term& term) {
    for_each_piece(label, columns_, panel, [&](int64_t c0, int64_t c1) {
      for (int64_t row = begin; row < end; row += 16) {
        alignas(64) T part[panel] = {};
        for (int64_t r = row; r < std::min(end, row + 16); ++r) {
          const auto element = term(r);
#pragma omp simd
          for (int64_t c = c0; c < c1; ++c) part[c - c0] += element(first_ + c);
        }
        for (int64_t c = c0; c < c1; ++c) sums_[c] += static_cast<double>(part[c - c0]);
      }
    });
  }

  template <class T>
  void add_to(T* gradient) const {
    for (int64_t c = 0; c < columns_; ++c)
      gradient[first_ + c] = static_cast<T>(static_cast<double>(gradient[first_ + c]) + sums_[c]);
  }

 private:
  static constexpr int64_t panel = 256;
  int64_t first_;
  int64_t columns_;
  alignas(64) double sums_[window];
};

/// Strip by strip of rows that stay in cache: scale(row) is kept, term(row, scale)(column) is
/// summed into dw, then finish(row, scale) writes the row's gradient, which may overwrite what term
/// read.
template <class T, class Scale, class Term, class Finish>
void norm_backward(const char* label, const Tensor& dw, int64_t rows, const Scale& scale,
                   const Term& term, const Finish& finish) {
  constexpr int64_t most_rows = 256;
  const int64_t dim = dw.extent(0);
  T* weight_gradient = dw.data<T>();
  const int64_t strip = std::clamp<int64_t>(32768 / std::max<int64_t>(dim, 1), 16, most_rows);
  for (int64_t first = 0; first < dim; first += ColumnSums::window) {
    const int64_t columns = std::min(ColumnSums::window, dim - first);
    ColumnSums sums(first, columns);
    for (int64_t begin = 0; begin < rows; begin += strip) {
      const int64_t end = std::min(rows, begin + strip);
      T scales[most_rows];
      for_each(label, end - begin, [&](int64_t i) { scales[i] = scale(begin + i); });
      sums.add_rows<T>(label, begin, end,
                       [&](int64_t row) { return term(row, scales[row - begin]); });
      if (first + columns == dim)
        for_each(label, end - begin, [&](int64_t i) { finish(begin + i, scales[i]); });
    }
    sums.add_to(weight_gradient);
  }
}

}  // namespace longstraw
