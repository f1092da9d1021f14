// The gates of the gated delta rule; the recurrence itself has its own folder.
#include "longstraw/kernels/delta_rule.hpp"

#include "loops.hpp"
#include "math.hpp"

#include <cmath>

namespace longstraw {
namespace {

/// Heads that are walked through all tokens together.
constexpr int64_t panel = 64;

/// What is constant over tokens: e^A_log and dt_bias of the heads [begin, end).
template <class T>
struct HeadConstants {
  T rate[panel];
  T bias[panel];
  HeadConstants(const Tensor& a_log, const Tensor& dt_bias, int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      rate[h - begin] = std::exp(a_log.data<T>()[h]);
      bias[h - begin] = dt_bias.data<T>()[h];
    }
  }
};

/// Derivative of softplus as it is computed: 1 where it is the identity (above 20).
template <class T>
T softplus_slope(T x) {
  return x > 20 ? T(1) : math::sigmoid(x);
}

bool same_heads(const Tensor& x, std::initializer_list<Tensor> others) {
  return x.order() == 2 && std::all_of(others.begin(), others.end(), [&](const Tensor& o) {
           return o.type() == x.type() && (alike(o, x) || is_vector(o, x.extent(1)));
         });
}

}  // namespace

void delta_gates(Stream& stream, const Tensor& g, const Tensor& beta, const Tensor& a,
                 const Tensor& b, const Tensor& a_log, const Tensor& dt_bias) {
  LONGSTRAW_ASSERT(same_heads(a, {b, g, beta, a_log, dt_bias}));
  constexpr auto label = "longstraw::delta_gates::forward";
  stream.count(label, 8.0 * static_cast<double>(a.size()));
  dispatch(a.type(), [&]<class T>(T) {
    for_each_piece(label, a.extent(1), panel, [=](int64_t begin, int64_t end) {
      const HeadConstants<T> heads(a_log, dt_bias, begin, end);
      for (int64_t token = 0; token < a.extent(0); ++token) {
        const T *a_row = a.row<T>(token) + begin, *b_row = b.row<T>(token) + begin;
        T *g_row = g.row<T>(token) + begin, *beta_row = beta.row<T>(token) + begin;
#pragma omp simd
        for (int64_t h = 0; h < end - begin; ++h) {
          g_row[h] = -heads.rate[h] * math::softplus(a_row[h] + heads.bias[h]);
          beta_row[h] = math::sigmoid(b_row[h]);
        }
      }
    });
  });
}

void delta_gates_backward(Stream& stream, const Tensor& da, const Tensor& db, const Tensor& da_log,
                          const Tensor& ddt_bias, const Tensor& dg, const Tensor& dbeta,
                          const Tensor& a, const Tensor& b, const Tensor& a_log,
                          const Tensor& dt_bias) {
  LONGSTRAW_ASSERT(same_heads(a, {b, da, db, dg, dbeta, da_log, ddt_bias, a_log, dt_bias}));
  constexpr auto label = "longstraw::delta_gates::backward";
  stream.count(label, 20.0 * static_cast<double>(a.size()));
  dispatch(a.type(), [&]<class T>(T) {
    for_each_piece(label, a.extent(1), panel, [=](int64_t begin, int64_t end) {
      const HeadConstants<T> heads(a_log, dt_bias, begin, end);
      // over tokens in order and in double: there may be millions
      double log_rate_sum[panel] = {}, bias_sum[panel] = {};
      for (int64_t token = 0; token < a.extent(0); ++token) {
        const T *a_row = a.row<T>(token) + begin, *b_row = b.row<T>(token) + begin;
        const T *dg_row = dg.row<T>(token) + begin, *dbeta_row = dbeta.row<T>(token) + begin;
        T *da_row = da.row<T>(token) + begin, *db_row = db.row<T>(token) + begin;
#pragma omp simd
        for (int64_t h = 0; h < end - begin; ++h) {
          const T x = a_row[h] + heads.bias[h], above = -heads.rate[h] * dg_row[h];
          const T slope = above * softplus_slope(x);
          log_rate_sum[h] += static_cast<double>(above * math::softplus(x));
          bias_sum[h] += static_cast<double>(slope);
          db_row[h] = dbeta_row[h] * math::sigmoid_slope(b_row[h]);
          da_row[h] = slope;
        }
      }
      for (int64_t h = begin; h < end; ++h) {
        da_log.data<T>()[h] += static_cast<T>(log_rate_sum[h - begin]);
        ddt_bias.data<T>()[h] += static_cast<T>(bias_sum[h - begin]);
      }
    });
  });
}

}  // namespace longstraw
