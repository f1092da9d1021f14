// Norms over rows, slow and obvious.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace longstraw::reference {

inline std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& w,
                                    bool zero_centred, double eps) {
  const size_t dim = w.size(), rows = x.size() / dim;
  std::vector<double> y(x.size());
  for (size_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (size_t c = 0; c < dim; ++c) squares += x[row * dim + c] * x[row * dim + c];
    const double root = std::sqrt(squares / static_cast<double>(dim) + eps);
    for (size_t c = 0; c < dim; ++c)
      y[row * dim + c] = x[row * dim + c] / root * (zero_centred ? 1 + w[c] : w[c]);
  }
  return y;
}

inline std::vector<double> gated_rms_norm(const std::vector<double>& x,
                                          const std::vector<double>& z,
                                          const std::vector<double>& w, double eps) {
  std::vector<double> y = rms_norm(x, w, false, eps);
  for (size_t i = 0; i < y.size(); ++i) y[i] *= z[i] / (1 + std::exp(-z[i]));
  return y;
}

inline std::vector<double> l2_norm(const std::vector<double>& x, int64_t dim, double scale,
                                   double eps) {
  std::vector<double> y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += dim) {
    double squares = 0;
    for (int64_t c = 0; c < dim; ++c) squares += x[begin + c] * x[begin + c];
    for (int64_t c = 0; c < dim; ++c)
      y[begin + c] = scale * x[begin + c] / std::sqrt(squares + eps);
  }
  return y;
}

}  // namespace longstraw::reference
