#include "longstraw/kernels/embedding.hpp"

#include "loops.hpp"
#include "math.hpp"

#include <cmath>
#include <limits>

namespace longstraw {
namespace {

template <class T>
T largest(const T* x, int64_t count) {
  constexpr int width = 32;
  T lanes[width];
  std::fill(lanes, lanes + width, -std::numeric_limits<T>::infinity());
  int64_t i = 0;
  for (; i + width <= count; i += width)
#pragma omp simd
    for (int lane = 0; lane < width; ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  for (; i < count; ++i) lanes[0] = std::max(lanes[0], x[i]);
  return *std::max_element(lanes, lanes + width);
}

/// Sums over a row, with z = (x - top) / temperature.
struct RowSums {
  double exponentials = 0;  ///< of e^z
  double weighted = 0;      ///< of z e^z
};

/// Blocks of 512 are summed in T (few roundings), the blocks in double (any vocabulary).
template <class T>
RowSums row_sums(const T* x, int64_t vocab, T top, T inverse_temperature) {
  RowSums sums;
  for (int64_t begin = 0; begin < vocab; begin += 512) {
    const int64_t count = std::min<int64_t>(512, vocab - begin);
    alignas(64) T z[512], e[512];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const T scaled = (x[begin + i] - top) * inverse_temperature;
      e[i] = math::exp(scaled);
      // a logit of -inf has probability 0 and adds nothing to the entropy
      z[i] = e[i] == 0 ? T(0) : scaled;
    }
    const T* exponentials = e;
    const T* scaled = z;
    sums.exponentials += sum_over<T>(count, [=](int64_t i) { return exponentials[i]; });
    sums.weighted += sum_over<T>(count, [=](int64_t i) { return exponentials[i] * scaled[i]; });
  }
  return sums;
}

bool valid_targets(const Tensor& logits, std::span<const int32_t> targets) {
  return logits.order() == 2 && std::ssize(targets) == logits.extent(0) &&
         std::all_of(targets.begin(), targets.end(),
                     [&](int32_t id) { return 0 <= id && id < logits.extent(1); });
}

}  // namespace

void log_prob(Stream& stream, std::span<double> logprob, std::span<double> entropy,
              std::span<double> normaliser, const Tensor& logits, std::span<const int32_t> targets,
              double temperature) {
  const int64_t tokens = logits.extent(0), vocab = logits.extent(1);
  LONGSTRAW_ASSERT(valid_targets(logits, targets) && temperature > 0);
  LONGSTRAW_ASSERT(std::ssize(logprob) == tokens && std::ssize(entropy) == tokens &&
                   std::ssize(normaliser) == tokens);
  constexpr auto label = "longstraw::log_prob::forward";
  stream.count(label, 8.0 * static_cast<double>(logits.size()));
  dispatch(logits.type(), [&]<class T>(T) {
    for_each(label, tokens, [=](int64_t token) {
      const T* x = logits.row<T>(token);
      const T top = largest(x, vocab);
      const RowSums sums = row_sums(x, vocab, top, static_cast<T>(1 / temperature));
      const double log_sum = std::log(sums.exponentials);
      const double target = static_cast<double>(x[targets[token]]) - static_cast<double>(top);
      logprob[token] = target / temperature - log_sum;
      entropy[token] = log_sum - sums.weighted / sums.exponentials;
      normaliser[token] = static_cast<double>(top) / temperature + log_sum;
    });
  });
}

void log_prob_backward(Stream& stream, const Tensor& logits, std::span<const double> dlogprob,
                       std::span<const double> normaliser, std::span<const int32_t> targets,
                       double temperature) {
  const int64_t tokens = logits.extent(0), vocab = logits.extent(1);
  LONGSTRAW_ASSERT(valid_targets(logits, targets) && temperature > 0);
  LONGSTRAW_ASSERT(std::ssize(dlogprob) == tokens && std::ssize(normaliser) == tokens);
  constexpr auto label = "longstraw::log_prob::backward";
  stream.count(label, 5.0 * static_cast<double>(logits.size()));
  dispatch(logits.type(), [&]<class T>(T) {
    const T inverse_temperature = static_cast<T>(1 / temperature);
    for_each(label, tokens, [=](int64_t token) {
      T* x = logits.row<T>(token);
      const double target_value = static_cast<double>(x[targets[token]]);
      // the normaliser in units of the logits and in two parts of type T, so that the difference to
      // a logit has the precision of the difference, not of the logit
      const double level = normaliser[token] * temperature;
      const T high = static_cast<T>(level), low = static_cast<T>(level - static_cast<double>(high));
      const T factor = static_cast<T>(-dlogprob[token] / temperature);
#pragma omp simd
      for (int64_t i = 0; i < vocab; ++i)
        x[i] = factor * math::exp(((x[i] - high) - low) * inverse_temperature);
      const double not_target = -std::expm1(target_value / temperature - normaliser[token]);
      x[targets[token]] = static_cast<T>(dlogprob[token] * not_target / temperature);
    });
  });
}

}  // namespace longstraw
