// Matrix products on plain pointers, for the loops inside kernels. Internal to the kernels.
#pragma once

#include "longstraw/core/check.hpp"
#include "longstraw/kernels/gemm.hpp"

#include <cblas.h>

#include <cstdint>
#include <limits>
#include <type_traits>

namespace longstraw::blas {

inline bool fits(int64_t extent) {
  return extent >= 0 && extent <= std::numeric_limits<int>::max();
}

/// C = alpha op(A) op(B) + beta C, row-major, with rows lda, ldb, ldc elements apart; op(A) [m, k],
/// op(B) [k, n], C [m, n]. With beta = 0, C is not read. m, n, k at least 1.
template <class T>
void gemm(Transpose ta, Transpose tb, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
          int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  LONGSTRAW_ASSERT(fits(m) && fits(n) && fits(k) && fits(lda) && fits(ldb) && fits(ldc));
  const auto op_a = ta == Transpose::yes ? CblasTrans : CblasNoTrans;
  const auto op_b = tb == Transpose::yes ? CblasTrans : CblasNoTrans;
  const auto i = [](int64_t extent) { return static_cast<int>(extent); };
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, op_a, op_b, i(m), i(n), i(k), alpha, a, i(lda), b, i(ldb), beta, c,
                i(ldc));
  } else {
    cblas_dgemm(CblasRowMajor, op_a, op_b, i(m), i(n), i(k), alpha, a, i(lda), b, i(ldb), beta, c,
                i(ldc));
  }
}

}  // namespace longstraw::blas
