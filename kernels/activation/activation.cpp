#include "longstraw/kernels/activation.hpp"

#include "loops.hpp"
#include "math.hpp"
#include "storage.hpp"

namespace longstraw {
namespace {

double operations(const Tensor& x, double per_element) {
  return per_element * static_cast<double>(x.size());
}

}  // namespace

void swiglu(Stream& stream, const Tensor& y, const Tensor& g, const Tensor& u) {
  LONGSTRAW_ASSERT(alike(g, u) && takes(y, g) && y.order() == 2);
  constexpr auto label = "longstraw::swiglu::forward";
  stream.count(label, operations(y, 5));
  const int64_t dim = y.extent(1);
  dispatch_stored(g.type(), g.type(), y.type(), [&]<class T, class Y>(T, auto, Y) {
    for_each(label, y.extent(0), [=](int64_t row) {
      const T *gate = g.row<T>(row), *up = u.row<T>(row);
      Y* out = y.row<Y>(row);
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) store(out[c], math::silu(gate[c]) * up[c]);
    });
  });
}

void swiglu_backward(Stream& stream, const Tensor& dg, const Tensor& du, const Tensor& dy,
                     const Tensor& g, const Tensor& u) {
  LONGSTRAW_ASSERT(takes(dg, dy) && takes(du, dy) && alike(dy, g) && alike(dy, u));
  LONGSTRAW_ASSERT(dy.order() == 2);
  constexpr auto label = "longstraw::swiglu::backward";
  stream.count(label, operations(dy, 11));
  const int64_t dim = dy.extent(1);
  dispatch_stored(dy.type(), dg.type(), du.type(), [&]<class T, class G, class U>(T, G, U) {
    for_each(label, dy.extent(0), [=](int64_t row) {
      const T *gate = g.row<T>(row), *up = u.row<T>(row), *above = dy.row<T>(row);
      G* gate_out = dg.row<G>(row);
      U* up_out = du.row<U>(row);
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        const T x = gate[c], d = above[c], s = math::sigmoid(x), v = up[c];
        store(gate_out[c], d * v * math::silu_slope(x, s));
        store(up_out[c], d * (x * s));
      }
    });
  });
}

void sigmoid_gate(Stream& stream, const Tensor& y, const Tensor& o, const Tensor& t) {
  LONGSTRAW_ASSERT(alike(o, t) && takes(y, o) && y.order() == 2);
  constexpr auto label = "longstraw::sigmoid_gate::forward";
  stream.count(label, operations(y, 4));
  const int64_t dim = y.extent(1);
  dispatch_stored(o.type(), o.type(), y.type(), [&]<class T, class Y>(T, auto, Y) {
    for_each(label, y.extent(0), [=](int64_t row) {
      const T *in = o.row<T>(row), *gate = t.row<T>(row);
      Y* out = y.row<Y>(row);
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) store(out[c], in[c] * math::sigmoid(gate[c]));
    });
  });
}

void sigmoid_gate_backward(Stream& stream, const Tensor& do_, const Tensor& dt, const Tensor& dy,
                           const Tensor& o, const Tensor& t) {
  LONGSTRAW_ASSERT(takes(do_, dy) && takes(dt, dy) && alike(dy, o) && alike(dy, t));
  LONGSTRAW_ASSERT(dy.order() == 2);
  constexpr auto label = "longstraw::sigmoid_gate::backward";
  stream.count(label, operations(dy, 9));
  const int64_t dim = dy.extent(1);
  dispatch_stored(dy.type(), do_.type(), dt.type(), [&]<class T, class O, class G>(T, O, G) {
    for_each(label, dy.extent(0), [=](int64_t row) {
      const T *in = o.row<T>(row), *gate = t.row<T>(row), *above = dy.row<T>(row);
      O* out = do_.row<O>(row);
      G* gate_out = dt.row<G>(row);
#pragma omp simd
      for (int64_t c = 0; c < dim; ++c) {
        const T d = above[c], x = gate[c], v = in[c];
        store(out[c], d * math::sigmoid(x));
        store(gate_out[c], d * v * math::sigmoid_slope(x));
      }
    });
  });
}

void add(Stream& stream, const Tensor& y, const Tensor& x) {
  LONGSTRAW_ASSERT(y.type() == x.type() && y.size() == x.size());
  constexpr auto label = "longstraw::add::forward";
  stream.count(label, operations(y, 1));
  if (y.empty()) return;
  const bool flat = y.contiguous() && x.contiguous();
  LONGSTRAW_ASSERT(flat || alike(y, x));
  constexpr int64_t piece = 8192;
  dispatch(y.type(), [&]<class T>(T) {
    const auto add_range = [](T* to, const T* from, int64_t count) {
#pragma omp simd
      for (int64_t c = 0; c < count; ++c) to[c] += from[c];
    };
    if (flat) {
      T* to = y.data<T>();
      const T* from = x.data<T>();
      for_each_piece(label, y.size(), piece, [=](int64_t begin, int64_t end) {
        add_range(to + begin, from + begin, end - begin);
      });
    } else {
      for_each(label, y.extent(0),
               [=](int64_t row) { add_range(y.row<T>(row), x.row<T>(row), y.row_size()); });
    }
  });
}

}  // namespace longstraw
