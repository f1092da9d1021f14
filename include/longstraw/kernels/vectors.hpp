// Flat arrays of parameters and gradients, as vectors: directions, steps along them, products. All
// arguments are contiguous [n]; arithmetic is in double, sums are made in a fixed order.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

#include <cstdint>

namespace longstraw {

struct Products {
  double aa = 0, bb = 0, ab = 0;
  double difference = 0;  ///< sum of (a - b)^2
};
/// Sums of a^2, b^2, a b and (a - b)^2. The types of a and b may differ.
Products products(Stream& stream, const Tensor& a, const Tensor& b);

/// Sum of g (a - b); a and b of one type.
double product_with_difference(Stream& stream, const Tensor& g, const Tensor& a, const Tensor& b);

/// y = x + factor d, rounded once; y may be x.
void step_along(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& d, double factor);

/// Fills x with standard normal numbers: element i is number i of `sequence` of `seed`
/// (core/random.hpp, Box and Muller's transform).
void fill_normal(Stream& stream, const Tensor& x, uint64_t seed, uint64_t sequence);

}  // namespace longstraw
