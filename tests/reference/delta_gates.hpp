// The gates of the gated delta rule, slow and obvious.
#pragma once

#include "reference/activation.hpp"

namespace longstraw::reference {

struct DeltaGates {
  std::vector<double> g;
  std::vector<double> beta;
};

inline DeltaGates delta_gates(const std::vector<double>& a, const std::vector<double>& b,
                              const std::vector<double>& a_log,
                              const std::vector<double>& dt_bias) {
  DeltaGates out;
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t head = i % a_log.size();
    out.g.push_back(-std::exp(a_log[head]) * softplus(a[i] + dt_bias[head]));
    out.beta.push_back(sigmoid(b[i]));
  }
  return out;
}

}  // namespace longstraw::reference
