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

struct SineCosine {
  double sine;
  double cosine;
};

/// Sine and cosine of an angle below 2.6e7 in size, within one unit in the last place of 1: pi / 2
/// is taken off in parts of 29 bits, whose multiples are exact, then the polynomials of fdlibm
/// (kernel sin and cos) serve on [-pi/4, pi/4].
inline SineCosine sincos(double angle) {
  constexpr double two_over_pi = 0.63661977236758134308;
  constexpr double part1 = 0x1.921fb54p+0, part2 = 0x1.10b4611p-30, part3 = 0x1.4c4c6628b80dcp-59;
  constexpr double rounder = 6755399441055744.0;  // 1.5 2^52, as in exp
  const double shifted = angle * two_over_pi + rounder;
  const double quarters = shifted - rounder;
  const double r = ((angle - quarters * part1) - quarters * part2) - quarters * part3;
  const double z = r * r;
  double s = 1.58969099521155010221e-10;
  s = s * z - 2.50507602534068634195e-08;
  s = s * z + 2.75573137070700676789e-06;
  s = s * z - 1.98412698298579493134e-04;
  s = s * z + 8.33333333332248946124e-03;
  s = s * z - 1.66666666666666324348e-01;
  s = s * z * r + r;
  double c = -1.13596475577881948265e-11;
  c = c * z + 2.08757232129817482790e-09;
  c = c * z - 2.75573143513906633035e-07;
  c = c * z + 2.48015872894767294178e-05;
  c = c * z - 1.38888888888741095749e-03;
  c = c * z + 4.16666666666666019037e-02;
  c = c * (z * z) - 0.5 * z + 1.0;
  const auto quarter = std::bit_cast<uint64_t>(shifted);
  const double sine = (quarter & 1) != 0 ? c : s;
  const double cosine = (quarter & 1) != 0 ? s : c;
  return {(quarter & 2) != 0 ? -sine : sine, ((quarter + 1) & 2) != 0 ? -cosine : cosine};
}

}  // namespace longstraw::math
