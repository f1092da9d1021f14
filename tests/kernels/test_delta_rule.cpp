#include "longstraw/core/split.hpp"
#include "longstraw/kernels/delta_rule.hpp"

#include "kernels/arrays.hpp"
#include "reference/delta_rule.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using reference::DeltaRule;
using reference::DeltaRuleGradient;
using reference::DeltaRuleResult;
using test::Array;
using test::relative_error;
using test::Values;

// A few tens of units in the last place: each result is a sum of up to some hundred terms with a
// rounding each, of random sign, and the triangular system may enlarge them a little. In float too
// this does not grow with the sums of g, which are kept in double. Measured: 2e-15 and 1.1e-6.
template <class T>
constexpr double bound = std::is_same_v<T, float> ? 5e-6 : 1e-12;

struct Gates {
  double g_low = -0.2, g_high = 0;
  double beta_low = 0.1, beta_high = 0.9;
};

/// Value heads [first, first + heads) of a model with `per_key` value heads a key head.
struct Part {
  int64_t first = 0, heads = 2, per_key = 1;
  HeadMap map() const { return {first, first / per_key, per_key}; }
  int64_t key_heads() const { return (first + heads - 1) / per_key - first / per_key + 1; }
};

DeltaRule problem(int64_t tokens, const Part& part, const Gates& gates = {}, int64_t dk = 8,
                  int64_t dv = 12) {
  std::mt19937_64 random(tokens * 131 + part.heads * 7 + part.per_key);
  DeltaRule rule{tokens, part.key_heads(), dk, dv, {}, {}, {}, {}, {}, {}, {}};
  for (int64_t h = 0; h < part.heads; ++h) rule.key_head.push_back(part.map().key_head(h));
  rule.q = test::uniform(random, tokens * rule.key_heads * dk);
  rule.k = test::uniform(random, tokens * rule.key_heads * dk);
  for (size_t row = 0; row < rule.k.size(); row += dk) {  // keys of length 1, as the model's are
    double square = 0;
    for (int64_t c = 0; c < dk; ++c) square += rule.k[row + c] * rule.k[row + c];
    for (int64_t c = 0; c < dk; ++c)
      rule.k[row + c] = static_cast<float>(rule.k[row + c] / std::sqrt(square));
  }
  rule.v = test::uniform(random, tokens * part.heads * dv);
  rule.g = test::uniform(random, tokens * part.heads, gates.g_low, gates.g_high);
  rule.beta = test::uniform(random, tokens * part.heads, gates.beta_low, gates.beta_high);
  rule.state = test::uniform(random, part.heads * dk * dv);
  return rule;
}

/// The arguments of both directions in type T; q and k are stored in K, v in V.
template <class T, class K = T, class V = K>
struct Arguments {
  Array<K> q, k;
  Array<V> v;
  Array<T> g, beta, state;
  explicit Arguments(const DeltaRule& r)
      : q({r.tokens, r.key_heads, r.dk}, r.q),
        k({r.tokens, r.key_heads, r.dk}, r.k),
        v({r.tokens, r.heads(), r.dv}, r.v),
        g({r.tokens, r.heads()}, r.g),
        beta({r.tokens, r.heads()}, r.beta),
        state({r.heads(), r.dk, r.dv}, r.state) {}
};

template <class T, class K = T, class V = K>
DeltaRuleResult run(const DeltaRule& r, const HeadMap& map) {
  Arguments<T, K, V> a(r);
  Array<T> o({r.tokens, r.heads(), r.dv});
  Array<T> workspace({delta_rule_workspace(r.tokens, r.dk, r.dv)});
  Stream stream;
  delta_rule(stream, o, a.state, a.q, a.k, a.v, a.g, a.beta, map, workspace);
  return {o.values(), a.state.values()};
}

/// dout is stored in V, too.
template <class T, class K = T, class V = K>
DeltaRuleGradient run_backward(const DeltaRule& r, const HeadMap& map, const Values& dout,
                               const Values& dstate) {
  Arguments<T, K, V> a(r);
  Array<T> dq({r.tokens, r.key_heads, r.dk}), dk({r.tokens, r.key_heads, r.dk});
  Array<T> dv({r.tokens, r.heads(), r.dv}), dg({r.tokens, r.heads()}), dbeta({r.tokens, r.heads()});
  Array<V> d({r.tokens, r.heads(), r.dv}, dout);
  Array<T> ds({r.heads(), r.dk, r.dv}, dstate);
  Array<T> workspace({delta_rule_backward_workspace(r.tokens, r.dk, r.dv)});
  Stream stream;
  delta_rule_backward(stream, dq, dk, dv, dg, dbeta, ds, d, a.state, a.q, a.k, a.v, a.g, a.beta,
                      map, workspace);
  EXPECT_EQ(a.state.values(), r.state);
  return {dq.values(), dk.values(), dv.values(), dg.values(), dbeta.values(), ds.values()};
}

Values random_like(const Values& like, int seed) {
  std::mt19937_64 random(seed);
  return test::uniform(random, static_cast<int64_t>(like.size()));
}

void expect_near(const DeltaRuleResult& got, const DeltaRuleResult& expected, double tolerance) {
  EXPECT_LT(relative_error(got.o, expected.o), tolerance);
  EXPECT_LT(relative_error(got.state, expected.state), tolerance);
}

void expect_near(const DeltaRuleGradient& got, const DeltaRuleGradient& expected,
                 double tolerance) {
  EXPECT_LT(relative_error(got.dq, expected.dq), tolerance);
  EXPECT_LT(relative_error(got.dk, expected.dk), tolerance);
  EXPECT_LT(relative_error(got.dv, expected.dv), tolerance);
  EXPECT_LT(relative_error(got.dg, expected.dg), tolerance);
  EXPECT_LT(relative_error(got.dbeta, expected.dbeta), tolerance);
  EXPECT_LT(relative_error(got.dstate, expected.dstate), tolerance);
}

/// Both directions against the recurrence, token by token.
template <class T>
void check(const DeltaRule& rule, const HeadMap& map, double tolerance) {
  expect_near(run<T>(rule, map), reference::delta_rule(rule), tolerance);
  const Values dout = random_like(rule.v, 1), dstate = random_like(rule.state, 2);
  expect_near(run_backward<T>(rule, map, dout, dstate),
              reference::delta_rule_backward(rule, dout, dstate), tolerance);
}

template <class T>
class DeltaRuleOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DeltaRuleOf, Types);

TYPED_TEST(DeltaRuleOf, EqualsTheRecurrence) {
  for (const int64_t per_key : {1, 2, 3})
    for (const int64_t tokens : {1, 3, 16, 17, 63, 64, 65, 597}) {
      SCOPED_TRACE(str("{} tokens, {} value heads a key head", tokens, per_key));
      const Part part{0, 2 * per_key, per_key};
      check<TypeParam>(problem(tokens, part), part.map(), bound<TypeParam>);
    }
}

TYPED_TEST(DeltaRuleOf, EqualsTheRecurrenceForOtherHeadSizes) {
  const Part part{0, 2, 2};
  for (const auto& [dk, dv] : {std::pair<int64_t, int64_t>{1, 1}, {64, 32}, {16, 48}, {33, 7}}) {
    SCOPED_TRACE(str("dk {}, dv {}", dk, dv));
    check<TypeParam>(problem(130, part, {}, dk, dv), part.map(), bound<TypeParam>);
  }
}

TYPED_TEST(DeltaRuleOf, DecayFromNoneToTotal) {
  const Part part{0, 2, 1};
  for (const Gates& gates : {Gates{0, 0}, Gates{-1e-3, 0}, Gates{-50, -49}, Gates{-50, 0}}) {
    SCOPED_TRACE(str("g from {} to {}", gates.g_low, gates.g_high));
    check<TypeParam>(problem(200, part, gates), part.map(), bound<TypeParam>);
  }
}

TYPED_TEST(DeltaRuleOf, WeakDecayAfterTotalDecay) {
  // Tokens 0 .. 31 forget all, so that gam is -1600 for the others, whose own decay is small: in
  // float, differences of such sums would be known to 1e-4 only.
  const Part part{0, 1, 1};
  DeltaRule rule = problem(64, part, {-0.01, 0});
  for (int64_t t = 0; t < 32; ++t) rule.g[t] = -50;
  check<TypeParam>(rule, part.map(), bound<TypeParam>);
}

TYPED_TEST(DeltaRuleOf, BetaFromZeroToOne) {
  const Part part{0, 2, 1};
  for (const Gates& gates : {Gates{-0.1, 0, 0, 0}, Gates{-0.1, 0, 0, 1e-6},
                             Gates{-0.1, 0, 1 - 1e-6, 1}, Gates{-0.1, 0, 1, 1}}) {
    SCOPED_TRACE(str("beta from {} to {}", gates.beta_low, gates.beta_high));
    check<TypeParam>(problem(150, part, gates), part.map(), bound<TypeParam>);
  }
}

/// Tokens [begin, end) of a problem, from `state`.
DeltaRule tokens_of(const DeltaRule& r, int64_t begin, int64_t end, const Values& state) {
  DeltaRule part = r;
  part.tokens = end - begin;
  part.state = state;
  for (Values* x : {&part.q, &part.k, &part.v, &part.g, &part.beta}) {
    const auto row = static_cast<int64_t>(x->size()) / r.tokens;
    *x = Values(x->begin() + begin * row, x->begin() + end * row);
  }
  return part;
}

Values joined(const Values& a, const Values& b) {
  Values both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

TYPED_TEST(DeltaRuleOf, SplitAnywhereWithTheStateCarried) {
  using T = TypeParam;
  const Part part{0, 4, 2};
  const DeltaRule whole = problem(140, part);
  const DeltaRuleResult expected = run<T>(whole, part.map());
  const Values dout = random_like(whole.v, 1), dstate = random_like(whole.state, 2);
  const DeltaRuleGradient gradient = run_backward<T>(whole, part.map(), dout, dstate);
  const auto row = static_cast<int64_t>(dout.size()) / whole.tokens;
  for (int64_t at = 0; at <= whole.tokens; at += at % 3 == 0 ? 1 : 13) {
    SCOPED_TRACE(str("split at {}", at));
    const DeltaRule first = tokens_of(whole, 0, at, whole.state);
    const DeltaRuleResult a = run<T>(first, part.map());
    const DeltaRule second = tokens_of(whole, at, whole.tokens, a.state);
    const DeltaRuleResult b = run<T>(second, part.map());
    expect_near({joined(a.o, b.o), b.state}, expected, bound<T>);

    const Values dout_a(dout.begin(), dout.begin() + at * row);
    const Values dout_b(dout.begin() + at * row, dout.end());
    const auto gb = run_backward<T>(second, part.map(), dout_b, dstate);
    const auto ga = run_backward<T>(first, part.map(), dout_a, gb.dstate);
    expect_near({joined(ga.dq, gb.dq), joined(ga.dk, gb.dk), joined(ga.dv, gb.dv),
                 joined(ga.dg, gb.dg), joined(ga.dbeta, gb.dbeta), ga.dstate},
                gradient, bound<T>);
  }
}

/// Value heads of a range, with the key heads that they need.
DeltaRule heads_of(const DeltaRule& r, const Part& part) {
  DeltaRule local = r;
  local.key_heads = part.key_heads();
  local.key_head.clear();
  for (int64_t h = 0; h < part.heads; ++h) local.key_head.push_back(part.map().key_head(h));
  const auto columns = [&](Values& x, int64_t count, int64_t width, int64_t first, int64_t heads) {
    const Values all = x;
    x.clear();
    for (int64_t t = 0; t < static_cast<int64_t>(all.size()) / (count * width); ++t)
      for (int64_t c = 0; c < heads * width; ++c) x.push_back(all[(t * count + first) * width + c]);
  };
  for (Values* x : {&local.q, &local.k})
    columns(*x, r.key_heads, r.dk, part.first / part.per_key, local.key_heads);
  columns(local.v, r.heads(), r.dv, part.first, part.heads);
  for (Values* x : {&local.g, &local.beta}) columns(*x, r.heads(), 1, part.first, part.heads);
  columns(local.state, r.heads(), r.dk * r.dv, part.first, part.heads);
  return local;
}

TYPED_TEST(DeltaRuleOf, PretendRanksWithRangesOfValueHeads) {
  using T = TypeParam;
  constexpr int64_t heads = 6, per_key = 3;
  const DeltaRule whole = problem(70, {0, heads, per_key});
  const DeltaRuleResult forward = reference::delta_rule(whole);
  // 4 ranks: heads 0-1, 2-3, 4, 5: the second begins in the middle of a key head and ends in the
  // next.
  Values dq(whole.q.size(), 0.0), dk(whole.k.size(), 0.0);
  const Values dout(whole.v.size(), 0.5), dstate(whole.state.size(), -0.25);
  const auto expected = reference::delta_rule_backward(whole, dout, dstate);
  for (int rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(str("rank {}", rank));
    const Range range = part_of(heads, 4, rank);
    const Part part{range.begin, range.size(), per_key};
    const DeltaRule local = heads_of(whole, part);
    expect_near(run<T>(local, part.map()), reference::delta_rule(local), bound<T>);
    const Values local_dout(local.v.size(), 0.5), local_dstate(local.state.size(), -0.25);
    const auto got = run_backward<T>(local, part.map(), local_dout, local_dstate);
    const int64_t row = local.key_heads * local.dk, first = part.first / per_key * whole.dk;
    for (int64_t t = 0; t < whole.tokens; ++t)
      for (int64_t c = 0; c < row; ++c) {
        dq[t * whole.key_heads * whole.dk + first + c] += got.dq[t * row + c];
        dk[t * whole.key_heads * whole.dk + first + c] += got.dk[t * row + c];
      }
    for (int64_t h = 0; h < part.heads; ++h)
      EXPECT_NEAR(got.dbeta[h], expected.dbeta[part.first + h], bound<T> * 10);
  }
  EXPECT_LT(relative_error(dq, expected.dq), bound<T>);
  EXPECT_LT(relative_error(dk, expected.dk), bound<T>);
  expect_near(run<T>(whole, HeadMap{0, 0, per_key}), forward, bound<T>);
}

TYPED_TEST(DeltaRuleOf, NoTokensAndNoHeads) {
  using T = TypeParam;
  const Part part{0, 2, 1};
  const DeltaRule empty = tokens_of(problem(5, part), 0, 0, problem(5, part).state);
  EXPECT_EQ(run<T>(empty, part.map()).state, empty.state);
  const Values dstate(empty.state.size(), 3.0);
  EXPECT_EQ(run_backward<T>(empty, part.map(), {}, dstate).dstate, dstate);
  // A rank may own no value head; a key head without one has no gradient.
  DeltaRule none = problem(5, {0, 1, 1});
  none.key_head.clear();
  none.v = none.g = none.beta = none.state = {};
  const auto gradient = run_backward<T>(none, {}, {}, {});
  EXPECT_EQ(gradient.dq, Values(none.q.size(), 0.0));
  EXPECT_TRUE(run<T>(none, {}).o.empty());
}

/// Both directions with stored operands: as exact as with float32, since nothing else is rounded.
template <class K, class V>
void check_stored(int64_t tokens, int64_t per_key) {
  SCOPED_TRACE(str("{} tokens, {} value heads a key head", tokens, per_key));
  const Part part{0, 2 * per_key, per_key};
  DeltaRule rule = problem(tokens, part);
  for (Values* x : {&rule.q, &rule.k, &rule.v}) *x = test::rounded(*x);
  const Values dout = test::rounded(random_like(rule.v, 1)), dstate = random_like(rule.state, 2);
  const auto forward = run<float, K, V>(rule, part.map());
  const auto back = run_backward<float, K, V>(rule, part.map(), dout, dstate);
  expect_near(forward, reference::delta_rule(rule), bound<float>);
  expect_near(back, reference::delta_rule_backward(rule, dout, dstate), bound<float>);
  EXPECT_EQ(forward.o, (run<float, K, V>(rule, part.map()).o));
  const auto again = run_backward<float, K, V>(rule, part.map(), dout, dstate);
  EXPECT_EQ(back.dq, again.dq);
  EXPECT_EQ(back.dstate, again.dstate);
}

TEST(DeltaRuleOfBfloat16, EqualsTheRecurrenceOfRoundedOperands) {
  for (const int64_t per_key : {1, 3})
    for (const int64_t tokens : {1, 3, 16, 17, 63, 64, 65, 597}) {
      check_stored<bfloat16, bfloat16>(tokens, per_key);
      check_stored<bfloat16, float>(tokens, per_key);
      check_stored<float, bfloat16>(tokens, per_key);
    }
}

TYPED_TEST(DeltaRuleOf, TwiceTheSameBits) {
  using T = TypeParam;
  const Part part{0, 4, 2};
  const DeltaRule rule = problem(150, part, {}, 20, 36);
  const Values dout = random_like(rule.v, 1), dstate = random_like(rule.state, 2);
  const auto once = [&] {
    const auto forward = run<T>(rule, part.map());
    const auto back = run_backward<T>(rule, part.map(), dout, dstate);
    Values all = joined(forward.o, forward.state);
    for (const Values& x : {back.dq, back.dk, back.dv, back.dg, back.dbeta, back.dstate})
      all = joined(all, x);
    return all;
  };
  EXPECT_EQ(once(), once());
}

TEST(DeltaRule, GradientEqualsFiniteDifferences) {
  const Part part{0, 2, 2};
  DeltaRule rule = problem(70, part, {}, 3, 4);
  const Values dout = random_like(rule.v, 1), dstate = random_like(rule.state, 2);
  const auto loss = [&] {
    const DeltaRuleResult result = run<double>(rule, part.map());
    double sum = 0;
    for (size_t i = 0; i < dout.size(); ++i) sum += dout[i] * result.o[i];
    for (size_t i = 0; i < dstate.size(); ++i) sum += dstate[i] * result.state[i];
    return sum;
  };
  const auto differences = [&](Values& x) {
    constexpr double step = 1e-5;
    Values gradient;
    for (double& value : x) {
      const double kept = value;
      value = kept + step;
      const double up = loss();
      value = kept - step;
      gradient.push_back((up - loss()) / (2 * step));
      value = kept;
    }
    return gradient;
  };
  const auto got = run_backward<double>(rule, part.map(), dout, dstate);
  // Central differences: step^2 = 1e-10 times third derivatives of some tens of the gradient's
  // size, and roundings of the loss of 1e-15 / step.
  expect_near(got,
              {differences(rule.q), differences(rule.k), differences(rule.v), differences(rule.g),
               differences(rule.beta), differences(rule.state)},
              1e-8);
}

TEST(DeltaRule, CountsItsOperations) {
  const DeltaRule r = problem(10, {0, 2, 1}, {}, 8, 12);
  Arguments<double> a(r);
  Array<double> o({10, 2, 12}), workspace({delta_rule_workspace(10, 8, 12)});
  Stream stream;
  delta_rule(stream, o, a.state, a.q, a.k, a.v, a.g, a.beta, HeadMap{}, workspace);
  EXPECT_EQ(stream.operations().at("longstraw::delta_rule::forward"),
            10 * 2 * (2 * 64 * (3 * 8 + 2 * 12) + 6 * 8 * 12));
}

}  // namespace
}  // namespace longstraw
