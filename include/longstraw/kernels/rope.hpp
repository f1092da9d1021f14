// Rotary position embedding on the first dimensions of each head, half-split pairing.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

#include <cstdint>
#include <span>

namespace longstraw {

enum class Rotation { forward, inverse };

/// In place on x [tokens, heads, dim]: with D = 2 * inv_freq.size() and j < D/2,
/// (x[j], x[j+D/2]) is rotated by positions[t] * inv_freq[j] (or minus that, `inverse`) and both
/// are multiplied by `scale` (YaRN's attention factor); dimensions from D on are left as they are.
/// Angles are computed and reduced in double, for positions below 2^24 and frequencies of at most 1.
/// The inverse is the transpose: what backward needs.
void rope(Stream& stream, const Tensor& x, std::span<const int64_t> positions,
          std::span<const double> inv_freq, double scale, Rotation rotation);

}  // namespace longstraw
