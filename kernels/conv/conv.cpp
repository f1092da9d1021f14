#include "longstraw/kernels/conv.hpp"

#include "loops.hpp"
#include "math.hpp"

#include <cstring>
#include <type_traits>

namespace longstraw {
namespace {

/// Channels that are walked through all tokens together: their last rows and weights stay in the
/// first-level cache.
constexpr int64_t panel = 256;
constexpr int64_t most_taps = 4;

/// The rows of mext = [tail; m], of which a panel reads columns.
template <class T>
struct Extended {
  Tensor tail;
  Tensor m;
  const T* row(int64_t index) const {
    const int64_t before = tail.extent(0);
    return index < before ? tail.row<T>(index) : m.row<T>(index - before);
  }
};

/// Weights of the channels [begin, end), one row a tap, so that channels lie side by side.
template <class T, int taps>
struct PanelWeights {
  alignas(64) T values[taps][panel];
  PanelWeights(const Tensor& w, int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int j = 0; j < taps; ++j) values[j][c - begin] = w.row<T>(c)[j];
  }
};

/// Rows, one a tap, from the first column of a panel on.
template <class T, int taps>
struct Rows {
  const T* at[taps];
};

/// The rows of mext that output t reads, from column `begin` on.
template <class T, int taps>
Rows<T, taps> inputs_of(const Extended<T>& mext, int64_t t, int64_t begin) {
  Rows<T, taps> rows;
  for (int j = 0; j < taps; ++j) rows.at[j] = mext.row(t + j) + begin;
  return rows;
}

template <class T, int taps>
T before_silu(const Rows<T, taps>& rows, const PanelWeights<T, taps>& w, int64_t c) {
  T sum = 0;
  for (int j = 0; j < taps; ++j) sum += w.values[j][c] * rows.at[j][c];
  return sum;
}

/// Asks for the columns of a row that is used `ahead` tokens later. A panel's rows lie in different
/// memory pages, which the processor does not foresee: forward over 2048 x 10240 channels
/// takes 10.5 ms with and 16 ms without (Zen 5, one core).
template <class T>
void prefetch(const Tensor& rows, int64_t t, int64_t begin, int64_t end) {
  constexpr int64_t ahead = 8, line = 64 / sizeof(T);
  if (t + ahead >= rows.extent(0)) return;
  const T* row = rows.row<T>(t + ahead);
  for (int64_t c = begin; c < end; c += line) __builtin_prefetch(row + c);
}

template <class T, int taps>
void forward_panel(const Tensor& y, const Extended<T>& mext, const Tensor& w, int64_t begin,
                   int64_t end) {
  const PanelWeights<T, taps> weights(w, begin, end);
  const int64_t width = end - begin;
  for (int64_t t = 0; t < y.extent(0); ++t) {
    const auto rows = inputs_of<T, taps>(mext, t, begin);
    T* out = y.row<T>(t) + begin;
    prefetch<T>(mext.m, t, begin, end);
    prefetch<T>(y, t, begin, end);
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) out[c] = math::silu(before_silu(rows, weights, c));
  }
}

/// Where backward writes and what it adds, and the gradients from above.
struct Gradients {
  Tensor dm;
  Tensor dtail;
  Tensor dw;
  Tensor dy;
  Tensor dtail_next;
};

/// Backward of the channels [begin, end): one pass over the tokens with the last `taps` rows of
/// dpre (the gradient before SiLU) at hand. The weight gradient is summed over 16 tokens in T and
/// then in double, in the order of tokens.
template <class T, int taps>
class BackwardPanel {
 public:
  BackwardPanel(const Gradients& gradients, const Extended<T>& mext, const Tensor& w, int64_t begin,
                int64_t end)
      : gradients_(gradients),
        mext_(mext),
        weights_(w, begin, end),
        begin_(begin),
        width_(end - begin) {}

  void run() {
    const int64_t tokens = gradients_.dy.extent(0);
    for (int64_t t = 0; t < tokens; ++t) {
      add_token(t);
      if (t % 16 == 15) flush();
      write_row(t, row_of(t));
    }
    flush();
    for (int64_t t = tokens; t < tokens + taps - 1; ++t) {
      std::fill(dpre_[t % taps], dpre_[t % taps] + width_, T(0));
      write_row(t, row_of(t));
      if (!gradients_.dtail_next.empty())
        add_row(row_of(t), gradients_.dtail_next.row<T>(t - tokens) + begin_);
    }
    for (int64_t c = 0; c < width_; ++c)
      for (int j = 0; j < taps; ++j) {
        T& dw = gradients_.dw.row<T>(begin_ + c)[j];
        dw = static_cast<T>(static_cast<double>(dw) + sums_[j][c]);
      }
  }

 private:
  /// Gradient of row `index` of mext.
  T* row_of(int64_t index) const {
    return (index < taps - 1 ? gradients_.dtail.row<T>(index)
                             : gradients_.dm.row<T>(index - (taps - 1))) +
           begin_;
  }

  void add_token(int64_t t) {
    const auto rows = inputs_of<T, taps>(mext_, t, begin_);
    const T* above = gradients_.dy.row<T>(t) + begin_;
    T* dpre = dpre_[t % taps];
    prefetch<T>(mext_.m, t, begin_, begin_ + width_);
    prefetch<T>(gradients_.dy, t, begin_, begin_ + width_);
    prefetch<T>(gradients_.dm, t, begin_, begin_ + width_);
#pragma omp simd
    for (int64_t c = 0; c < width_; ++c) {
      const T x = before_silu(rows, weights_, c);
      const T d = above[c] * math::silu_slope(x, math::sigmoid(x));
      dpre[c] = d;
      for (int j = 0; j < taps; ++j) part_[j][c] += d * rows.at[j][c];
    }
  }

  /// dmext[t] = sum_j w[j] dpre[t - j], complete once dpre[t] is there.
  void write_row(int64_t t, T* out) const {
    Rows<T, taps> dpre;
    for (int j = 0; j < taps; ++j) dpre.at[j] = dpre_[(t + taps - j) % taps];
#pragma omp simd
    for (int64_t c = 0; c < width_; ++c) out[c] = before_silu(dpre, weights_, c);
  }

  void add_row(T* out, const T* more) const {
#pragma omp simd
    for (int64_t c = 0; c < width_; ++c) out[c] += more[c];
  }

  void flush() {
    for (int j = 0; j < taps; ++j)
#pragma omp simd
      for (int64_t c = 0; c < width_; ++c) {
        sums_[j][c] += static_cast<double>(part_[j][c]);
        part_[j][c] = 0;
      }
  }

  const Gradients& gradients_;
  const Extended<T>& mext_;
  const PanelWeights<T, taps> weights_;
  const int64_t begin_;
  const int64_t width_;
  alignas(64) T dpre_[taps][panel] = {};
  alignas(64) T part_[taps][panel] = {};
  alignas(64) double sums_[taps][panel] = {};
};

/// Calls body with the number of taps as a constant, which the vector loops need.
template <class Body>
void dispatch_taps(int64_t taps, const Body& body) {
  require(2 <= taps && taps <= most_taps,
          "a causal convolution of {} taps is not built in (2 to {} are) - check "
          "linear_conv_kernel_dim in the model's config.json",
          taps, most_taps);
  if (taps == 2) return body(std::integral_constant<int, 2>());
  if (taps == 3) return body(std::integral_constant<int, 3>());
  body(std::integral_constant<int, 4>());
}

bool fits(const Tensor& m, const Tensor& tail, const Tensor& w) {
  const int64_t channels = m.extent(1);
  return m.order() == 2 && tail.order() == 2 && w.order() == 2 && tail.extent(1) == channels &&
         w.extent(0) == channels && tail.extent(0) == w.extent(1) - 1 && tail.type() == m.type() &&
         w.type() == m.type();
}

double operations(const Tensor& m, const Tensor& w, double per_tap, double per_element) {
  return static_cast<double>(m.size()) * (per_tap * static_cast<double>(w.extent(1)) + per_element);
}

}  // namespace

void causal_conv(Stream& stream, const Tensor& y, const Tensor& m, const Tensor& tail,
                 const Tensor& w) {
  LONGSTRAW_ASSERT(fits(m, tail, w) && alike(y, m));
  constexpr auto label = "longstraw::causal_conv::forward";
  stream.count(label, operations(m, w, 2, 4));
  dispatch(m.type(), [&]<class T>(T) {
    dispatch_taps(w.extent(1), [&]<int taps>(std::integral_constant<int, taps>) {
      const Extended<T> mext{tail, m};
      for_each_piece(label, m.extent(1), panel, [&](int64_t begin, int64_t end) {
        forward_panel<T, taps>(y, mext, w, begin, end);
      });
    });
  });
}

void causal_conv_backward(Stream& stream, const Tensor& dm, const Tensor& dtail, const Tensor& dw,
                          const Tensor& dy, const Tensor& dtail_next, const Tensor& m,
                          const Tensor& tail, const Tensor& w) {
  LONGSTRAW_ASSERT(fits(m, tail, w) && alike(dy, m) && alike(dm, m) && alike(dtail, tail));
  LONGSTRAW_ASSERT(alike(dw, w) && (dtail_next.empty() || alike(dtail_next, tail)));
  constexpr auto label = "longstraw::causal_conv::backward";
  stream.count(label, operations(m, w, 6, 8));
  dispatch(m.type(), [&]<class T>(T) {
    dispatch_taps(w.extent(1), [&]<int taps>(std::integral_constant<int, taps>) {
      const Extended<T> mext{tail, m};
      const Gradients gradients{dm, dtail, dw, dy, dtail_next};
      for_each_piece(label, m.extent(1), panel, [&](int64_t begin, int64_t end) {
        BackwardPanel<T, taps>(gradients, mext, w, begin, end).run();
      });
    });
  });
}

void advance_tail(Stream& stream, const Tensor& tail, const Tensor& m) {
  LONGSTRAW_ASSERT(tail.order() == 2 && m.order() == 2 && tail.type() == m.type() &&
                   tail.extent(1) == m.extent(1));
  constexpr auto label = "longstraw::causal_conv::advance_tail";
  stream.count(label, 0);
  const int64_t kept = tail.extent(0), tokens = m.extent(0);
  dispatch(m.type(), [&]<class T>(T) {
    const Extended<T> mext{tail, m};
    for_each_piece(label, m.extent(1), panel, [&](int64_t begin, int64_t end) {
      // upwards, so that a row is read before it is overwritten
      for (int64_t i = 0; tokens > 0 && i < kept; ++i)
        std::memcpy(tail.row<T>(i) + begin, mext.row(tokens + i) + begin,
                    sizeof(T) * (end - begin));
    });
  });
}

}  // namespace longstraw
