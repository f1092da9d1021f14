#include "longstraw/kernels/adamw.hpp"

#include "loops.hpp"

#include <cmath>

namespace longstraw {

void adamw(Stream& stream, const Tensor& weight, const Tensor& m, const Tensor& v,
           const Tensor& gradient, const AdamW& settings) {
  const int64_t size = weight.size();
  LONGSTRAW_ASSERT(is_vector(weight, size) && is_vector(m, size) && is_vector(v, size) &&
                   is_vector(gradient, size));
  LONGSTRAW_ASSERT(alike(weight, m) && alike(weight, v) && alike(weight, gradient));
  LONGSTRAW_ASSERT(settings.step >= 1);
  constexpr auto label = "longstraw::adamw::update";
  stream.count(label, 15.0 * static_cast<double>(size));
  const double steps = static_cast<double>(settings.step);
  const double rate = settings.lr / (1 - std::pow(settings.beta1, steps));
  const double root = 1 / std::sqrt(1 - std::pow(settings.beta2, steps));
  const double keep = 1 - settings.lr * settings.weight_decay;
  dispatch(weight.type(), [&]<class T>(T) {
    T *w = weight.data<T>(), *first = m.data<T>(), *second = v.data<T>();
    const T* g = gradient.data<T>();
    for_each_piece(label, size, 4096, [=](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const double slope = settings.grad_scale * static_cast<double>(g[i]);
        const double mean =
            settings.beta1 * static_cast<double>(first[i]) + (1 - settings.beta1) * slope;
        const double square =
            settings.beta2 * static_cast<double>(second[i]) + (1 - settings.beta2) * slope * slope;
        const double step = rate * mean / (std::sqrt(square) * root + settings.eps);
        first[i] = static_cast<T>(mean);
        second[i] = static_cast<T>(square);
        w[i] = static_cast<T>(keep * static_cast<double>(w[i]) - step);
      }
    });
  });
}

double sum_of_squares(Stream& stream, const Tensor& x) {
  constexpr auto label = "longstraw::sum_of_squares::sum";
  stream.count(label, 2.0 * static_cast<double>(x.size()));
  if (x.empty()) return 0;
  const int64_t rows = x.contiguous() ? 1 : x.extent(0);
  const int64_t row_size = x.size() / rows;
  double total = 0;
  dispatch(x.type(), [&]<class T>(T) {
    for (int64_t row = 0; row < rows; ++row) {
      const T* data = x.row<T>(row);
      total += ordered_sum(label, row_size, [=](int64_t i) {
        const double value = static_cast<double>(data[i]);
        return value * value;
      });
    }
  });
  return total;
}

}  // namespace longstraw
