#include "longstraw/kernels/vectors.hpp"

#include "longstraw/core/random.hpp"
#include "loops.hpp"

#include <cmath>
#include <numbers>

namespace longstraw {

Products products(Stream& stream, const Tensor& a, const Tensor& b) {
  const int64_t size = a.size();
  LONGSTRAW_ASSERT(is_vector(a, size) && is_vector(b, size));
  constexpr auto label = "longstraw::vectors::products";
  stream.count(label, 9.0 * static_cast<double>(size));
  Products sums;
  dispatch(a.type(), [&]<class A>(A) {
    dispatch(b.type(), [&]<class B>(B) {
      const A* x = a.data<A>();
      const B* y = b.data<B>();
      const auto sum = [=](const auto& term) {
        return ordered_sum(label, size, [=](int64_t i) {
          return term(static_cast<double>(x[i]), static_cast<double>(y[i]));
        });
      };
      sums = {.aa = sum([](double p, double) { return p * p; }),
              .bb = sum([](double, double q) { return q * q; }),
              .ab = sum([](double p, double q) { return p * q; }),
              .difference = sum([](double p, double q) { return (p - q) * (p - q); })};
    });
  });
  return sums;
}

double product_with_difference(Stream& stream, const Tensor& g, const Tensor& a, const Tensor& b) {
  const int64_t size = g.size();
  LONGSTRAW_ASSERT(is_vector(g, size) && is_vector(a, size) && alike(a, b) && b.contiguous());
  constexpr auto label = "longstraw::vectors::product_with_difference";
  stream.count(label, 3.0 * static_cast<double>(size));
  return dispatch(g.type(), [&]<class G>(G) {
    return dispatch(a.type(), [&]<class T>(T) {
      const G* slope = g.data<G>();
      const T *x = a.data<T>(), *y = b.data<T>();
      return ordered_sum(label, size, [=](int64_t i) {
        return static_cast<double>(slope[i]) *
               (static_cast<double>(x[i]) - static_cast<double>(y[i]));
      });
    });
  });
}

void step_along(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& d, double factor) {
  const int64_t size = y.size();
  LONGSTRAW_ASSERT(is_vector(y, size) && alike(x, y) && alike(d, y) && x.contiguous() &&
                   d.contiguous());
  constexpr auto label = "longstraw::vectors::step_along";
  stream.count(label, 2.0 * static_cast<double>(size));
  dispatch(y.type(), [&]<class T>(T) {
    T* to = y.data<T>();
    const T *from = x.data<T>(), *direction = d.data<T>();
    for_each_piece(label, size, 4096, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        to[i] = static_cast<T>(static_cast<double>(from[i]) +
                               factor * static_cast<double>(direction[i]));
    });
  });
}

void fill_normal(Stream& stream, const Tensor& x, uint64_t seed, uint64_t sequence) {
  const int64_t size = x.size();
  LONGSTRAW_ASSERT(is_vector(x, size));
  constexpr auto label = "longstraw::vectors::fill_normal";
  stream.count(label, 10.0 * static_cast<double>(size));
  dispatch(x.type(), [&]<class T>(T) {
    T* to = x.data<T>();
    for_each_piece(label, size, 4096, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double radius = std::sqrt(-2 * std::log(random_unit(seed, sequence, 2 * i)));
        const double angle = 2 * std::numbers::pi * random_unit(seed, sequence, 2 * i + 1);
        to[i] = static_cast<T>(radius * std::cos(angle));
      }
    });
  });
}

}  // namespace longstraw
