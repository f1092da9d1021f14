// bfloat16, a type to store in: its numbers are widened to be computed with and rounded where they
// are written. In the header so that loops over them become vector code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace longstraw {
namespace detail {

// A double as float such that a second rounding, to a type of fewer bits, gives what a single
// rounding would: truncated, with the last bit set where something was cut off (rounding to odd).
inline float to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace detail

/// The upper half of a float.
struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  /// To nearest even; beyond the largest finite number: infinite; a NaN stays one.
  explicit bfloat16(float value) : bits(rounded(std::bit_cast<uint32_t>(value))) {}
  /// Likewise, rounded once.
  explicit bfloat16(double value) : bfloat16(detail::to_odd(value)) {}
  static bfloat16 from_bits(uint16_t bits) {
    bfloat16 number;
    number.bits = bits;
    return number;
  }
  /// Exact.
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }

 private:
  static uint16_t rounded(uint32_t value) {
    const uint32_t nearest = (value + 0x7fffu + ((value >> 16) & 1u)) >> 16;
    const uint32_t quiet = (value >> 16) | 0x40u;
    return static_cast<uint16_t>((value & 0x7fffffffu) > 0x7f800000u ? quiet : nearest);
  }
};
static_assert(sizeof(bfloat16) == 2);

}  // namespace longstraw
