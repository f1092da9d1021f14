// How kernels run over rows and sum along them. Internal to the kernels.
#pragma once

#include "longstraw/core/tensor.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace longstraw {

/// body(i) for i in [0, count), in any order, on the host.
template <class Body>
void for_each(const char* label, int64_t count, const Body& body) {
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::IndexType<int64_t>>;
  Kokkos::parallel_for(label, Policy(0, count), body);
}

/// body(begin, end) for the pieces [begin, end) of [0, count) that are `piece` long, the last one
/// shorter.
template <class Body>
void for_each_piece(const char* label, int64_t count, int64_t piece, const Body& body) {
  for_each(label, (count + piece - 1) / piece,
           [&](int64_t i) { body(i * piece, std::min(count, (i + 1) * piece)); });
}

/// Sum of term(i) for i in [0, count), always in the same order, whatever the vector width.
template <class T, class Term>
T sum_over(int64_t count, const Term& term) {
  constexpr int width = 32;
  alignas(64) T lanes[width] = {};
  int64_t i = 0;
  for (; i + width <= count; i += width)
#pragma omp simd
    for (int lane = 0; lane < width; ++lane) lanes[lane] += term(i + lane);
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
  for (int half = width / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

/// Sum of term(i) in double for i in [0, count): pieces whose sums are added in order, on any
/// number of threads.
template <class Term>
double ordered_sum(const char* label, int64_t count, const Term& term) {
  constexpr int64_t piece = 4096, together = 256;
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += piece * together) {
    double sums[together] = {};
    double* const sums_of_pieces = sums;
    for_each_piece(
        label, std::min(piece * together, count - begin), piece, [=](int64_t first, int64_t last) {
          sums_of_pieces[first / piece] =
              sum_over<double>(last - first, [=](int64_t i) { return term(begin + first + i); });
        });
    total = std::accumulate(sums, sums + together, total);
  }
  return total;
}

/// Whether b has the extents of a; types and strides may differ.
inline bool same_extents(const Tensor& a, const Tensor& b) {
  if (a.order() != b.order()) return false;
  for (int i = 0; i < a.order(); ++i)
    if (a.extent(i) != b.extent(i)) return false;
  return true;
}

/// Whether b has the type and extents of a; strides may differ.
inline bool alike(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && same_extents(a, b);
}

/// Whether x is a contiguous vector of `size` elements.
inline bool is_vector(const Tensor& x, int64_t size) {
  return x.order() == 1 && x.extent(0) == size && x.contiguous();
}

}  // namespace longstraw
