// Branch-free elementary functions that compilers turn into vector code: polynomials for float, the
// standard library for double. Internal to the kernels.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace longstraw::math {

inline double exp(double x) { return std::exp(x); }

/// Within 1.1 units in the last place, denormal results included; 0 for -inf, inf above 88.72, NaN
/// for NaN.
inline float exp(float x) {
  constexpr float log2_e = 1.44269504f;
  constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  constexpr float rounder = 12582912.0f;  // 1.5 2^23: adding it leaves the nearest integer
  // written so that NaN stays; the bounds lie beyond underflow to 0 and overflow to inf
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float shifted = x * log2_e + rounder;
  const float power = shifted - rounder;
  const float r = (x - power * ln2_high) - power * ln2_low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // 2^power as the product of two halves, so that it neither overflows nor underflows before p does
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(rounder);
  const int32_t half = n >> 1;
  const auto first = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const auto second = std::bit_cast<float>(static_cast<uint32_t>(n - half + 127) << 23);
  return p * first * second;
}

/// 1 / (1 + e^-x), with full relative precision on both sides.
template <class T>
T sigmoid(T x) {
  const T e = exp(x < 0 ? x : -x);
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

/// Derivative of the sigmoid at x, sigmoid(x) sigmoid(-x).
template <class T>
T sigmoid_slope(T x) {
  const T e = exp(x < 0 ? x : -x);
  return e / ((T(1) + e) * (T(1) + e));
}

/// x sigmoid(x).
template <class T>
T silu(T x) {
  return x * sigmoid(x);
}

/// Derivative of silu given s = sigmoid(x).
template <class T>
T silu_slope(T x, T s) {
  return s * (T(1) + x * (T(1) - s));
}

/// ln(1 + u) for u in [0, 1].
inline double log1p_unit(double u) { return std::log1p(u); }
/// As 2 atanh(u / (2 + u)), whose series in (u / (2 + u))^2 <= 1/9 is cut where 1e-9 is left.
inline float log1p_unit(float u) {
  const float s = u / (2.0f + u);
  const float q = s * s;
  float p = 1.0f / 15;
  p = p * q + 1.0f / 13;
  p = p * q + 1.0f / 11;
  p = p * q + 1.0f / 9;
  p = p * q + 1.0f / 7;
  p = p * q + 1.0f / 5;
  p = p * q + 1.0f / 3;
  return 2.0f * s + 2.0f * s * (q * p);
}

/// ln(1 + e^x), and x itself above 20 as PyTorch has it.
template <class T>
T softplus(T x) {
  const T rest = log1p_unit(exp(x < 0 ? x : -x));
  return x > 20 ? x : (x < 0 ? T(0) : x) + rest;
}

}  // namespace longstraw::math
