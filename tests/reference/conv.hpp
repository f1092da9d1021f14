// Causal convolution with SiLU over time, slow and obvious.
#pragma once

#include "reference/activation.hpp"

#include <cstdint>

namespace longstraw::reference {

/// m [tokens, channels], tail [taps - 1, channels], w [channels, taps].
inline std::vector<double> causal_conv(const std::vector<double>& m,
                                       const std::vector<double>& tail,
                                       const std::vector<double>& w, int64_t channels) {
  const auto taps = static_cast<int64_t>(w.size()) / channels;
  std::vector<double> extended = tail, y(m.size());
  extended.insert(extended.end(), m.begin(), m.end());
  const auto tokens = static_cast<int64_t>(m.size()) / channels;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < taps; ++j) sum += w[c * taps + j] * extended[(t + j) * channels + c];
      y[t * channels + c] = silu(sum);
    }
  return y;
}

}  // namespace longstraw::reference
