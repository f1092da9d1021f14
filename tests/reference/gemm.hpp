// Matrix product, slow and obvious.
#pragma once

#include <cstdint>
#include <vector>

namespace longstraw::reference {

/// op(A) [m, k] op(B) [k, n]; a and b are stored as they are, before op.
inline std::vector<double> product(const std::vector<double>& a, bool transpose_a,
                                   const std::vector<double>& b, bool transpose_b, int64_t m,
                                   int64_t n, int64_t k) {
  std::vector<double> c(m * n, 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        c[i * n + j] +=
            a[transpose_a ? l * m + i : i * k + l] * b[transpose_b ? j * k + l : l * n + j];
  return c;
}

}  // namespace longstraw::reference
