// Rotary embedding with angles in long double, slow and obvious.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace longstraw::reference {

/// x [tokens, heads, dim]; sign 1 rotates forward, -1 back.
inline std::vector<double> rope(std::vector<double> x, const std::vector<int64_t>& positions,
                                const std::vector<double>& inv_freq, int64_t heads, int64_t dim,
                                double scale, int sign) {
  const auto pairs = static_cast<int64_t>(inv_freq.size());
  for (size_t t = 0; t < positions.size(); ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t j = 0; j < pairs; ++j) {
        const long double angle = static_cast<long double>(positions[t]) * inv_freq[j];
        const long double c = scale * std::cos(angle), s = sign * scale * std::sin(angle);
        double& low = x[(static_cast<int64_t>(t) * heads + h) * dim + j];
        double& high = x[(static_cast<int64_t>(t) * heads + h) * dim + j + pairs];
        const long double a = low, b = high;
        low = static_cast<double>(a * c - b * s);
        high = static_cast<double>(b * c + a * s);
      }
  return x;
}

}  // namespace longstraw::reference
