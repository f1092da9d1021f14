// The gated delta rule token by token in plain double loops, forward and backward, for one value
// head after the other.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace longstraw::reference {

/// q, k [tokens, key_heads, dk], v [tokens, heads, dv], g, beta [tokens, heads], state [heads, dk,
/// dv]; value head h uses key head `key_head[h]`.
struct DeltaRule {
  int64_t tokens, key_heads, dk, dv;
  std::vector<int64_t> key_head;
  std::vector<double> q, k, v, g, beta, state;

  int64_t heads() const { return static_cast<int64_t>(key_head.size()); }
  int64_t key_row(int64_t t, int64_t h) const { return (t * key_heads + key_head[h]) * dk; }
  int64_t value_row(int64_t t, int64_t h) const { return (t * heads() + h) * dv; }
};

struct DeltaRuleResult {
  std::vector<double> o, state;
};

/// One token: s <- e^g s; error = v - s^T k; s <- s + beta k error^T. Returns the error.
inline std::vector<double> step(const DeltaRule& rule, int64_t t, int64_t h, double* s) {
  const double decay = std::exp(rule.g[t * rule.heads() + h]);
  const double beta = rule.beta[t * rule.heads() + h];
  const double* k = &rule.k[rule.key_row(t, h)];
  std::vector<double> error(&rule.v[rule.value_row(t, h)], &rule.v[rule.value_row(t, h)] + rule.dv);
  for (int64_t i = 0; i < rule.dk * rule.dv; ++i) s[i] *= decay;
  for (int64_t a = 0; a < rule.dk; ++a)
    for (int64_t b = 0; b < rule.dv; ++b) error[b] -= s[a * rule.dv + b] * k[a];
  for (int64_t a = 0; a < rule.dk; ++a)
    for (int64_t b = 0; b < rule.dv; ++b) s[a * rule.dv + b] += beta * k[a] * error[b];
  return error;
}

inline DeltaRuleResult delta_rule(const DeltaRule& rule) {
  DeltaRuleResult result{std::vector<double>(rule.v.size(), 0.0), rule.state};
  for (int64_t h = 0; h < rule.heads(); ++h) {
    double* s = &result.state[h * rule.dk * rule.dv];
    for (int64_t t = 0; t < rule.tokens; ++t) {
      step(rule, t, h, s);
      for (int64_t a = 0; a < rule.dk; ++a)
        for (int64_t b = 0; b < rule.dv; ++b)
          result.o[rule.value_row(t, h) + b] += s[a * rule.dv + b] * rule.q[rule.key_row(t, h) + a];
    }
  }
  return result;
}

struct DeltaRuleGradient {
  std::vector<double> dq, dk, dv, dg, dbeta, dstate;
};

/// One token backward: ds is the gradient of the state after it, then of the state before it.
/// `before` is the state before the token.
inline void step_backward(const DeltaRule& rule, int64_t t, int64_t h,
                          const std::vector<double>& before, const double* dout, double* ds,
                          DeltaRuleGradient& gradient) {
  const int64_t at = t * rule.heads() + h, key = rule.key_row(t, h), value = rule.value_row(t, h);
  const double decay = std::exp(rule.g[at]), beta = rule.beta[at];
  std::vector<double> after = before, derror(rule.dv, 0.0);
  const std::vector<double> error = step(rule, t, h, after.data());
  const double *q = &rule.q[key], *k = &rule.k[key];
  for (int64_t a = 0; a < rule.dk; ++a)
    for (int64_t b = 0; b < rule.dv; ++b) {
      const int64_t ab = a * rule.dv + b;
      gradient.dq[key + a] += after[ab] * dout[b];
      ds[ab] += q[a] * dout[b];
      derror[b] += beta * ds[ab] * k[a];
      gradient.dk[key + a] += beta * ds[ab] * error[b];
      gradient.dbeta[at] += ds[ab] * k[a] * error[b];
    }
  for (int64_t b = 0; b < rule.dv; ++b) gradient.dv[value + b] += derror[b];
  for (int64_t a = 0; a < rule.dk; ++a)
    for (int64_t b = 0; b < rule.dv; ++b) {
      const int64_t ab = a * rule.dv + b;
      gradient.dk[key + a] -= decay * before[ab] * derror[b];
      ds[ab] -= k[a] * derror[b];
      gradient.dg[at] += ds[ab] * decay * before[ab];
      ds[ab] *= decay;
    }
}

/// `dstate` is the gradient of the state after the last token.
inline DeltaRuleGradient delta_rule_backward(const DeltaRule& rule, const std::vector<double>& dout,
                                             const std::vector<double>& dstate) {
  const auto zeros = [](const std::vector<double>& like) {
    return std::vector<double>(like.size(), 0.0);
  };
  DeltaRuleGradient gradient{zeros(rule.q), zeros(rule.k),    zeros(rule.v),
                             zeros(rule.g), zeros(rule.beta), dstate};
  const int64_t size = rule.dk * rule.dv;
  for (int64_t h = 0; h < rule.heads(); ++h) {
    std::vector<std::vector<double>> states(1);
    states[0].assign(&rule.state[h * size], &rule.state[h * size] + size);
    for (int64_t t = 0; t < rule.tokens; ++t) {
      states.push_back(states.back());
      step(rule, t, h, states.back().data());
    }
    for (int64_t t = rule.tokens - 1; t >= 0; --t)
      step_backward(rule, t, h, states[t], &dout[rule.value_row(t, h)], &gradient.dstate[h * size],
                    gradient);
  }
  return gradient;
}

}  // namespace longstraw::reference
