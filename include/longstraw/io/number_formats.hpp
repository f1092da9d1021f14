// Half-precision numbers as files hold them, to and from the types we compute in. In the header so
// that loops over them become vector code.
#pragma once

#include "longstraw/core/bfloat16.hpp"

#include <bit>
#include <cstdint>

namespace longstraw {
namespace detail {

// `bits` divided by 2^shift, to nearest even.
inline uint32_t shift_to_even(uint32_t bits, int shift) {
  const uint32_t half = 1u << (shift - 1);
  const uint32_t rest = bits & ((half << 1) - 1);
  const uint32_t kept = bits >> shift;
  return kept + (rest > half || (rest == half && (kept & 1u)));
}

}  // namespace detail

/// Exact.
inline float from_bf16(uint16_t bits) { return bfloat16::from_bits(bits); }

/// To nearest even; beyond the largest finite number: infinite; a NaN stays one.
inline uint16_t to_bf16(float value) { return bfloat16(value).bits; }

/// Likewise, rounded once.
inline uint16_t to_bf16(double value) { return bfloat16(value).bits; }

/// Exact.
inline float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu, fraction = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  const float subnormal = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}

/// Likewise.
inline uint16_t to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 2^16 and more
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= -14)  // normal; a carry runs into the exponent, as far as infinity
    return static_cast<uint16_t>(sign | detail::shift_to_even(magnitude - (112u << 23), 13));
  if (exponent < -25) return static_cast<uint16_t>(sign);
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  return static_cast<uint16_t>(sign | detail::shift_to_even(significand, -exponent - 1));
}

/// Likewise, rounded once.
inline uint16_t to_f16(double value) { return to_f16(detail::to_odd(value)); }

}  // namespace longstraw
