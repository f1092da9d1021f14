#include "longstraw/kernels/norm.hpp"

#include "loops.hpp"
#include "math.hpp"
#include "norm/column_sums.hpp"
#include "storage.hpp"

#include <cmath>

namespace longstraw {
namespace {

/// Sum of squares in double: the factor made of it scales a whole row, so its rounding would be the
/// same for every element and add up in later products.
template <class T>
double sum_of_squares_of(const T* x, int64_t dim) {
  return sum_over<double>(dim, [=](int64_t c) {
    const double value = x[c];
    return value * value;
  });
}

template <class T>
T inverse_rms(const T* x, int64_t dim, double eps) {
  return static_cast<T>(1 / std::sqrt(sum_of_squares_of(x, dim) / static_cast<double>(dim) + eps));
}

template <class T>
T inverse_length(const T* x, int64_t dim, double eps) {
  return static_cast<T>(1 / std::sqrt(sum_of_squares_of(x, dim) + eps));
}

bool same_matrices(const Tensor& x, std::initializer_list<Tensor> others) {
  return x.order() == 2 &&
         std::all_of(others.begin(), others.end(), [&](const Tensor& o) { return alike(x, o); });
}

bool fits_columns(const Tensor& dw, const Tensor& x) {
  return is_vector(dw, x.extent(1)) && dw.type() == x.type();
}

double operations(const Tensor& x, double per_element) {
  return per_element * static_cast<double>(x.size());
}

}  // namespace

void rms_norm(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& w, NormWeight kind,
              double eps) {
  LONGSTRAW_ASSERT(x.order() == 2 && takes(y, x) && weighs_columns(w, x));
  constexpr auto label = "longstraw::rms_norm::forward";
  stream.count(label, operations(x, 5));
  const int64_t dim = x.extent(1);
  dispatch_stored(x.type(), w.type(), y.type(), [&]<class T, class W, class Y>(T, W, Y) {
    const W* weight = w.data<W>();
    const T centre = kind == NormWeight::zero_centred ? 1 : 0;
    for_each(label, x.extent(0), [=](int64_t row) {
      const T* in = x.row<T>(row);
      Y* out = y.row<Y>(row);
      const T r = inverse_rms(in, dim, eps);
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) store(out[c], in[c] * r * (centre + weight[c]));
    });
  });
}

void rms_norm_backward(Stream& stream, const Tensor& dx, const Tensor& dw, const Tensor& dy,
                       const Tensor& x, const Tensor& w, NormWeight kind, double eps,
                       bool accumulate_dx) {
  LONGSTRAW_ASSERT(same_matrices(x, {dx, dy}) && weighs_columns(w, x) && fits_columns(dw, x));
  constexpr auto label = "longstraw::rms_norm::backward";
  stream.count(label, operations(x, 13));
  const int64_t dim = x.extent(1);
  dispatch_stored(x.type(), w.type(), x.type(), [&]<class T, class W>(T, W, auto) {
    const W* weight = w.data<W>();
    const T centre = kind == NormWeight::zero_centred ? 1 : 0;
    const auto scale = [=](int64_t row) { return inverse_rms(x.row<T>(row), dim, eps); };
    const auto weight_term = [=](int64_t row, T r) {
      const T *in = x.row<T>(row), *above = dy.row<T>(row);
      return [=](int64_t c) { return above[c] * (in[c] * r); };
    };
    const auto finish = [=](int64_t row, T r) {
      const T *in = x.row<T>(row), *above = dy.row<T>(row);
      T* out = dx.row<T>(row);
      const T mean =
          sum_over<T>(dim,
                      [=](int64_t c) { return above[c] * (centre + weight[c]) * (in[c] * r); }) /
          static_cast<T>(dim);
      const auto gradient = [=](int64_t c) {
        return r * (above[c] * (centre + weight[c]) - in[c] * r * mean);
      };
      if (accumulate_dx) {
#pragma omp simd
        for (int64_t c = 0; c < dim; ++c) out[c] += gradient(c);
      } else {
#pragma omp simd
        for (int64_t c = 0; c < dim; ++c) out[c] = gradient(c);
      }
    };
    norm_backward<T>(label, dw, x.extent(0), scale, weight_term, finish);
  });
}

void gated_rms_norm(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& z,
                    const Tensor& w, double eps) {
  LONGSTRAW_ASSERT(same_matrices(x, {z}) && takes(y, x) && weighs_columns(w, x));
  constexpr auto label = "longstraw::gated_rms_norm::forward";
  stream.count(label, operations(x, 10));
  const int64_t dim = x.extent(1);
  dispatch_stored(x.type(), w.type(), y.type(), [&]<class T, class W, class Y>(T, W, Y) {
    const W* weight = w.data<W>();
    for_each(label, x.extent(0), [=](int64_t row) {
      const T *in = x.row<T>(row), *gate = z.row<T>(row);
      Y* out = y.row<Y>(row);
      const T r = inverse_rms(in, dim, eps);
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) store(out[c], in[c] * r * weight[c] * math::silu(gate[c]));
    });
  });
}

void gated_rms_norm_backward(Stream& stream, const Tensor& dx, const Tensor& dz, const Tensor& dw,
                             const Tensor& dy, const Tensor& x, const Tensor& z, const Tensor& w,
                             double eps) {
  LONGSTRAW_ASSERT(same_matrices(x, {dx, dz, dy, z}) && weighs_columns(w, x) &&
                   fits_columns(dw, x));
  constexpr auto label = "longstraw::gated_rms_norm::backward";
  stream.count(label, operations(x, 30));
  const int64_t dim = x.extent(1);
  dispatch_stored(x.type(), w.type(), x.type(), [&]<class T, class W>(T, W, auto) {
    const W* weight = w.data<W>();
    const auto scale = [=](int64_t row) { return inverse_rms(x.row<T>(row), dim, eps); };
    const auto weight_term = [=](int64_t row, T r) {
      const T *in = x.row<T>(row), *above = dy.row<T>(row), *gate = z.row<T>(row);
      return [=](int64_t c) { return above[c] * math::silu(gate[c]) * (in[c] * r); };
    };
    const auto finish = [=](int64_t row, T r) {
      const T *in = x.row<T>(row), *above = dy.row<T>(row), *gate = z.row<T>(row);
      T *out = dx.row<T>(row), *gate_out = dz.row<T>(row);
      const T mean = sum_over<T>(dim,
                                 [=](int64_t c) {
                                   return above[c] * math::silu(gate[c]) * weight[c] * (in[c] * r);
                                 }) /
                     static_cast<T>(dim);
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        const T xhat = in[c] * r, above_weight = above[c] * weight[c], t = gate[c];
        const T s = math::sigmoid(t);
        out[c] = r * (above_weight * (t * s) - xhat * mean);
        gate_out[c] = above_weight * xhat * math::silu_slope(t, s);
      }
    };
    norm_backward<T>(label, dw, x.extent(0), scale, weight_term, finish);
  });
}

void l2_norm(Stream& stream, const Tensor& y, const Tensor& x, double scale, double eps) {
  LONGSTRAW_ASSERT(x.order() == 2 && takes(y, x));
  constexpr auto label = "longstraw::l2_norm::forward";
  stream.count(label, operations(x, 3));
  const int64_t dim = x.extent(1);
  dispatch_stored(x.type(), x.type(), y.type(), [&]<class T, class Y>(T, auto, Y) {
    for_each(label, x.extent(0), [=](int64_t row) {
      const T* in = x.row<T>(row);
      Y* out = y.row<Y>(row);
      const T factor = static_cast<T>(scale) * inverse_length(in, dim, eps);
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) store(out[c], in[c] * factor);
    });
  });
}

void l2_norm_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& x,
                      double scale, double eps) {
  LONGSTRAW_ASSERT(same_matrices(x, {dx, dy}));
  constexpr auto label = "longstraw::l2_norm::backward";
  stream.count(label, operations(x, 8));
  const int64_t dim = x.extent(1);
  dispatch(x.type(), [&]<class T>(T) {
    for_each(label, x.extent(0), [=](int64_t row) {
      const T *in = x.row<T>(row), *above = dy.row<T>(row);
      T* out = dx.row<T>(row);
      const T r = inverse_length(in, dim, eps);
      const T dot = sum_over<T>(dim, [=](int64_t c) { return above[c] * (in[c] * r); });
      const T factor = static_cast<T>(scale) * r;
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) out[c] = factor * (above[c] - in[c] * r * dot);
    });
  });
}

}  // namespace longstraw
