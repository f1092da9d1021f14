// Elementwise gates, slow and obvious.
#pragma once

#include <cmath>
#include <vector>

namespace longstraw::reference {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
/// As PyTorch: x itself above 20.
inline double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }

inline std::vector<double> swiglu(const std::vector<double>& g, const std::vector<double>& u) {
  std::vector<double> y(g.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = silu(g[i]) * u[i];
  return y;
}

inline std::vector<double> sigmoid_gate(const std::vector<double>& o,
                                        const std::vector<double>& t) {
  std::vector<double> y(o.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = o[i] * sigmoid(t[i]);
  return y;
}

}  // namespace longstraw::reference
