// Softmax attention in plain double loops, one query and head at a time.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace longstraw::reference {

struct Attention {
  int64_t heads, kv_heads, dim;
  double scale;
  std::vector<double> q, k, v;  ///< [queries, heads, dim], [keys, kv_heads, dim]
  std::vector<int64_t> positions, key_positions;

  int64_t queries() const { return static_cast<int64_t>(positions.size()); }
  int64_t keys() const { return static_cast<int64_t>(key_positions.size()); }
  const double* query(int64_t i, int64_t h) const { return &q[(i * heads + h) * dim]; }
  int64_t key_at(int64_t j, int64_t h) const {
    return (j * kv_heads + h / (heads / kv_heads)) * dim;
  }
  bool sees(int64_t i, int64_t j) const { return key_positions[j] <= positions[i]; }
  double score(int64_t i, int64_t h, int64_t j) const {
    double sum = 0;
    for (int64_t c = 0; c < dim; ++c) sum += query(i, h)[c] * k[key_at(j, h) + c];
    return scale * sum;
  }
};

struct AttentionResult {
  std::vector<double> out, lse;
};

inline AttentionResult attention(const Attention& a) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  AttentionResult result{std::vector<double>(a.q.size(), 0.0),
                         std::vector<double>(a.queries() * a.heads, -infinity)};
  for (int64_t i = 0; i < a.queries(); ++i)
    for (int64_t h = 0; h < a.heads; ++h) {
      double top = -infinity, sum = 0;
      for (int64_t j = 0; j < a.keys(); ++j)
        if (a.sees(i, j)) top = std::max(top, a.score(i, h, j));
      if (top == -infinity) continue;
      double* out = &result.out[(i * a.heads + h) * a.dim];
      for (int64_t j = 0; j < a.keys(); ++j) {
        if (!a.sees(i, j)) continue;
        const double p = std::exp(a.score(i, h, j) - top);
        sum += p;
        for (int64_t c = 0; c < a.dim; ++c) out[c] += p * a.v[a.key_at(j, h) + c];
      }
      for (int64_t c = 0; c < a.dim; ++c) out[c] /= sum;
      result.lse[i * a.heads + h] = top + std::log(sum);
    }
  return result;
}

struct AttentionGradient {
  std::vector<double> dq, dk, dv;
};

/// p = exp(s - lse), dv = p^T dout, ds = p (dout v^T - delta), dq = scale ds k, dk = scale ds^T q.
inline AttentionGradient attention_backward(const Attention& a, const AttentionResult& forward,
                                            const std::vector<double>& dout) {
  AttentionGradient gradient{std::vector<double>(a.q.size(), 0.0),
                             std::vector<double>(a.k.size(), 0.0),
                             std::vector<double>(a.v.size(), 0.0)};
  for (int64_t i = 0; i < a.queries(); ++i)
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t row = (i * a.heads + h) * a.dim;
      double delta = 0;
      for (int64_t c = 0; c < a.dim; ++c) delta += dout[row + c] * forward.out[row + c];
      for (int64_t j = 0; j < a.keys(); ++j) {
        if (!a.sees(i, j)) continue;
        const int64_t key = a.key_at(j, h);
        const double p = std::exp(a.score(i, h, j) - forward.lse[i * a.heads + h]);
        double dp = 0;
        for (int64_t c = 0; c < a.dim; ++c) dp += dout[row + c] * a.v[key + c];
        const double ds = p * (dp - delta);
        for (int64_t c = 0; c < a.dim; ++c) {
          gradient.dv[key + c] += p * dout[row + c];
          gradient.dq[row + c] += a.scale * ds * a.k[key + c];
          gradient.dk[key + c] += a.scale * ds * a.q[row + c];
        }
      }
    }
  return gradient;
}

}  // namespace longstraw::reference
