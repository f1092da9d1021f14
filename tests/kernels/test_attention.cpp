#include "longstraw/core/split.hpp"
#include "longstraw/kernels/attention.hpp"

#include "kernels/arrays.hpp"
#include "reference/attention.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using reference::Attention;
using reference::AttentionResult;
using test::Array;
using test::relative_error;
using test::Values;

// Double: sums of some hundred terms of mixed sign, with a rounding of 1e-16 each. Measured: 3e-15.
constexpr double double_bound = 1e-12;
// Float: scores of size 3 are known to some units in the last place (6e-8), which the exponential
// turns into relative errors of the weights; their sums average them. Measured: 8e-7.
constexpr double float_bound = 2e-6;
template <class T>
constexpr double bound = std::is_same_v<T, float> ? float_bound : double_bound;

/// Keys at positions 0 .. keys - 1, queries at `first` .. first + queries - 1.
Attention problem(int64_t queries, int64_t first, int64_t keys, int64_t heads, int64_t kv_heads,
                  int64_t dim, double size = 1) {
  std::mt19937_64 random(queries * 7919 + keys * 31 + heads);
  Attention a{heads, kv_heads, dim, 0.5, {}, {}, {}, {}, {}};
  a.q = test::uniform(random, queries * heads * dim, -size, size);
  a.k = test::uniform(random, keys * kv_heads * dim);
  a.v = test::uniform(random, keys * kv_heads * dim);
  for (int64_t i = 0; i < queries; ++i) a.positions.push_back(first + i);
  for (int64_t j = 0; j < keys; ++j) a.key_positions.push_back(j);
  return a;
}

/// The keys and values of a problem as pages in type T, their gradients in G; `owned` lists the
/// keys of this rank.
template <class T, class G = T>
class Pages {
 public:
  enum class Gradients { none, values_only, both };

  Pages(const Attention& a, int64_t page_tokens, const std::vector<int64_t>& owned,
        Gradients gradients = Gradients::none, double initial = 0)
      : row_(a.kv_heads * a.dim), owned_(owned) {
    const auto count = static_cast<int64_t>(owned.size());
    for (int64_t j : owned) {
      positions_.push_back(a.key_positions[j]);
      for (int64_t c = 0; c < row_; ++c) k_.push_back(static_cast<T>(a.k[j * row_ + c]));
      for (int64_t c = 0; c < row_; ++c) v_.push_back(static_cast<T>(a.v[j * row_ + c]));
    }
    dk_.assign(k_.size(), static_cast<G>(initial));
    dv_.assign(v_.size(), static_cast<G>(initial));
    for (int64_t first = 0; first < count; first += page_tokens) {
      const int64_t tokens = std::min(page_tokens, count - first);
      const auto view = [&]<class E>(std::vector<E>& data) {
        return Tensor(data.data() + first * row_, dtype_of<E>, {tokens, a.kv_heads, a.dim});
      };
      KeyPage page{view(k_), view(v_), std::span(positions_).subspan(first, tokens), {}, {}};
      if (gradients == Gradients::both) page.dkeys = view(dk_);
      if (gradients != Gradients::none) page.dvalues = view(dv_);
      pages_.push_back(page);
    }
  }
  operator std::span<const KeyPage>() const { return pages_; }
  /// Adds this rank's dk and dv to the gradients of all keys.
  void collect(Values& dk, Values& dv) const {
    for (size_t j = 0; j < owned_.size(); ++j)
      for (int64_t c = 0; c < row_; ++c) {
        dk[owned_[j] * row_ + c] += dk_[j * row_ + c];
        dv[owned_[j] * row_ + c] += dv_[j * row_ + c];
      }
  }

 private:
  int64_t row_;
  std::vector<int64_t> owned_, positions_;
  std::vector<T> k_, v_;
  std::vector<G> dk_, dv_;
  std::vector<KeyPage> pages_;
};

std::vector<int64_t> all_keys(const Attention& a) {
  std::vector<int64_t> keys(a.keys());
  for (int64_t j = 0; j < a.keys(); ++j) keys[j] = j;
  return keys;
}

/// Keys of `rank` when every block of `block` tokens is cut into `ranks` slices.
std::vector<int64_t> keys_of_rank(const Attention& a, int64_t block, int ranks, int rank) {
  std::vector<int64_t> keys;
  for (int64_t first = 0; first < a.keys(); first += block) {
    const Range slice = part_of(std::min(block, a.keys() - first), ranks, rank);
    for (int64_t j = slice.begin; j < slice.end; ++j) keys.push_back(first + j);
  }
  return keys;
}

template <class T>
Array<T> workspace_of(const Attention& a, std::span<const KeyPage> pages) {
  const DType keys = pages.empty() ? dtype_of<T> : pages.front().keys.type();
  return Array<T>({attention_workspace(a.queries(), a.heads, a.kv_heads, a.dim, keys)});
}

/// Queries are stored in S.
template <class T, class S = T>
AttentionResult run(const Attention& a, std::span<const KeyPage> pages) {
  Array<T> out({a.queries(), a.heads, a.dim}), lse({a.queries(), a.heads});
  Array<S> q({a.queries(), a.heads, a.dim}, a.q);
  Array<T> workspace = workspace_of<T>(a, pages);
  Stream stream;
  attention(stream, out, lse, q, a.positions, pages, a.scale, workspace);
  return {out.values(), lse.values()};
}

Values row_sums(const Values& a, const Values& b, int64_t dim) {
  Values sums(a.size() / dim, 0.0);
  for (size_t i = 0; i < a.size(); ++i) sums[i / dim] += a[i] * b[i];
  return sums;
}

/// dq; the pages take dk and dv. Queries are stored in S, and dout.
template <class T, class S = T>
Values run_backward(const Attention& a, const AttentionResult& forward, const Values& dout,
                    std::span<const KeyPage> pages, Stream& stream) {
  Array<T> dq({a.queries(), a.heads, a.dim});
  Array<S> d({a.queries(), a.heads, a.dim}, dout), q({a.queries(), a.heads, a.dim}, a.q);
  Array<T> lse({a.queries(), a.heads}, forward.lse);
  Array<T> delta({a.queries(), a.heads}, row_sums(dout, forward.out, a.dim));
  Array<T> workspace = workspace_of<T>(a, pages);
  attention_backward(stream, dq, d, q, lse, delta, a.positions, pages, a.scale, workspace);
  return dq.values();
}

Values random_like(const Values& like, int seed) {
  std::mt19937_64 random(seed);
  return test::uniform(random, static_cast<int64_t>(like.size()));
}

template <class T>
class AttentionOf : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionOf, Types);

TYPED_TEST(AttentionOf, EqualsReferenceWhateverThePageSize) {
  using T = TypeParam;
  for (const int64_t group : {1, 2, 3})
    for (const int64_t keys : {1, 3, 63, 64, 65, 597}) {
      const Attention a = problem(keys, 0, keys, 2 * group, 2, 10);
      const AttentionResult expected = reference::attention(a);
      for (const int64_t page_tokens : {int64_t{1}, int64_t{7}, int64_t{64}, keys}) {
        const AttentionResult got = run<T>(a, Pages<T>(a, page_tokens, all_keys(a)));
        EXPECT_LT(relative_error(got.out, expected.out), bound<T>) << keys << " " << page_tokens;
        EXPECT_LT(relative_error(got.lse, expected.lse), bound<T>) << keys << " " << page_tokens;
      }
    }
}

TYPED_TEST(AttentionOf, BackwardEqualsReferenceWhateverThePageSize) {
  using T = TypeParam;
  for (const int64_t group : {1, 2, 3})
    for (const int64_t keys : {1, 3, 63, 64, 65, 597}) {
      const Attention a = problem(keys, 0, keys, 2 * group, 2, 10);
      const AttentionResult forward = reference::attention(a);
      const Values dout = random_like(a.q, 3);
      const auto expected = reference::attention_backward(a, forward, dout);
      for (const int64_t page_tokens : {int64_t{1}, int64_t{7}, int64_t{64}, keys}) {
        Stream stream;
        const Pages<T> pages(a, page_tokens, all_keys(a), Pages<T>::Gradients::both);
        const Values dq = run_backward<T>(a, forward, dout, pages, stream);
        Values dk(a.k.size(), 0.0), dv(a.v.size(), 0.0);
        pages.collect(dk, dv);
        // With one key the gradients of the scores are 0, as differences of terms of order 1.
        const double size = keys == 1 ? 1 : 1e-300;
        EXPECT_LT(relative_error(dq, expected.dq, size), bound<T>) << keys << " " << page_tokens;
        EXPECT_LT(relative_error(dk, expected.dk, size), bound<T>) << keys << " " << page_tokens;
        EXPECT_LT(relative_error(dv, expected.dv), bound<T>) << keys << " " << page_tokens;
      }
    }
}

TYPED_TEST(AttentionOf, QueriesAfterALongPrompt) {
  using T = TypeParam;
  for (const int64_t queries : {1, 5, 300}) {
    const Attention a = problem(queries, 1100, 1100 + queries, 6, 2, 16);
    const AttentionResult expected = reference::attention(a);
    const AttentionResult got = run<T>(a, Pages<T>(a, 700, all_keys(a)));
    EXPECT_LT(relative_error(got.out, expected.out), bound<T>);
    EXPECT_LT(relative_error(got.lse, expected.lse), bound<T>);
  }
}

TYPED_TEST(AttentionOf, PretendRanksMergeToOne) {
  using T = TypeParam;
  constexpr int ranks = 3;
  for (const int64_t first : {0, 400}) {
    const Attention a = problem(first == 0 ? 597 : 70, first, 597, 4, 2, 12);
    const AttentionResult expected = reference::attention(a);
    const Values dout = random_like(a.q, 5);
    const auto gradient = reference::attention_backward(a, expected, dout);
    Values outs, lses, dq(a.q.size(), 0.0), dk(a.k.size(), 0.0), dv(a.v.size(), 0.0);
    for (int rank = 0; rank < ranks; ++rank) {
      const Pages<T> pages(a, 64, keys_of_rank(a, 50, ranks, rank), Pages<T>::Gradients::both);
      const AttentionResult part = run<T>(a, pages);
      outs.insert(outs.end(), part.out.begin(), part.out.end());
      lses.insert(lses.end(), part.lse.begin(), part.lse.end());
      Stream stream;
      const Values part_dq = run_backward<T>(a, expected, dout, pages, stream);
      for (size_t i = 0; i < dq.size(); ++i) dq[i] += part_dq[i];
      pages.collect(dk, dv);
    }
    Array<T> out({a.queries(), a.heads, a.dim}), lse({a.queries(), a.heads});
    Array<T> all({ranks, a.queries(), a.heads, a.dim}, outs);
    Array<T> all_lse({ranks, a.queries(), a.heads}, lses);
    Stream stream;
    attention_merge(stream, out, lse, all, all_lse);
    EXPECT_LT(relative_error(out.values(), expected.out), bound<T>);
    EXPECT_LT(relative_error(lse.values(), expected.lse), bound<T>);
    EXPECT_LT(relative_error(dq, gradient.dq), bound<T>);
    EXPECT_LT(relative_error(dk, gradient.dk), bound<T>);
    EXPECT_LT(relative_error(dv, gradient.dv), bound<T>);
  }
}

TYPED_TEST(AttentionOf, NothingVisibleGivesZeroAndMinusInfinity) {
  using T = TypeParam;
  const double infinity = std::numeric_limits<double>::infinity();
  // Queries 0 .. 9 against keys 5 .. 12, and against no page at all.
  Attention a = problem(10, 0, 8, 6, 2, 12);
  for (int64_t& position : a.key_positions) position += 5;
  const AttentionResult expected = reference::attention(a);
  ASSERT_EQ(expected.lse[4 * a.heads], -infinity);
  const Values dout = random_like(a.q, 9);
  const Pages<T> pages(a, 3, all_keys(a), Pages<T>::Gradients::both);
  const AttentionResult got = run<T>(a, pages);
  EXPECT_LT(relative_error(got.out, expected.out), bound<T>);
  EXPECT_LT(relative_error(got.lse, expected.lse), bound<T>);
  Stream stream;
  const Values dq = run_backward<T>(a, expected, dout, pages, stream);
  EXPECT_LT(relative_error(dq, reference::attention_backward(a, expected, dout).dq), bound<T>);

  const AttentionResult none = run<T>(a, {});
  EXPECT_EQ(none.out, Values(a.q.size(), 0.0));
  EXPECT_EQ(none.lse, Values(a.queries() * a.heads, -infinity));
  EXPECT_EQ(run_backward<T>(a, expected, dout, {}, stream), Values(a.q.size(), 0.0));
}

TYPED_TEST(AttentionOf, MergeWithoutAnyVisibleKey) {
  using T = TypeParam;
  const double infinity = std::numeric_limits<double>::infinity();
  Array<T> out({1, 2, 2}), lse({1, 2}), outs({2, 1, 2, 2}, {0, 0, 0, 0, 0, 0, 3, 4});
  Array<T> lses({2, 1, 2}, {-infinity, -infinity, -infinity, 7});
  Stream stream;
  attention_merge(stream, out, lse, outs, lses);
  EXPECT_EQ(out.values(), Values({0, 0, 3, 4}));
  EXPECT_EQ(lse.values(), Values({-infinity, 7}));
}

TYPED_TEST(AttentionOf, NoQueries) {
  using T = TypeParam;
  const Attention a = problem(0, 0, 5, 2, 1, 4);
  EXPECT_TRUE(run<T>(a, Pages<T>(a, 2, all_keys(a))).out.empty());
}

TYPED_TEST(AttentionOf, LargeScoresNeitherOverflowNorVanish) {
  using T = TypeParam;
  // Scores up to 2000, whose largest lies now in an early page, now in a late one.
  const Attention a = problem(70, 600, 670, 2, 1, 8, 1000);
  const AttentionResult expected = reference::attention(a);
  const AttentionResult got = run<T>(a, Pages<T>(a, 31, all_keys(a)));
  // In float a score of 2000 is known to 1.2e-4, and so is the exponential of a difference; in
  // double to 2e-13.
  const double tolerance = std::is_same_v<T, float> ? 2.4e-4 : bound<T>;
  EXPECT_LT(relative_error(got.out, expected.out), tolerance);
  EXPECT_LT(relative_error(got.lse, expected.lse), bound<T>);
}

TYPED_TEST(AttentionOf, TwiceTheSameBits) {
  using T = TypeParam;
  const Attention a = problem(300, 200, 500, 6, 2, 10);
  const Values dout = random_like(a.q, 1);
  const auto once = [&] {
    const Pages<T> pages(a, 100, all_keys(a), Pages<T>::Gradients::both);
    const AttentionResult forward = run<T>(a, pages);
    Stream stream;
    Values all = run_backward<T>(a, forward, dout, pages, stream);
    Values dk(a.k.size(), 0.0), dv(a.v.size(), 0.0);
    pages.collect(dk, dv);
    for (const Values& part : {forward.out, forward.lse, dk, dv})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  EXPECT_EQ(once(), once());
}

TYPED_TEST(AttentionOf, GradientsAreAddedWhereWanted) {
  using T = TypeParam;
  const Attention a = problem(40, 30, 70, 4, 2, 8);
  const AttentionResult forward = reference::attention(a);
  const Values dout = random_like(a.q, 2);
  const auto expected = reference::attention_backward(a, forward, dout);
  using Gradients = typename Pages<T>::Gradients;
  for (const auto wanted : {Gradients::none, Gradients::values_only, Gradients::both}) {
    Stream stream;
    const Pages<T> pages(a, 20, all_keys(a), wanted, 2.0);
    EXPECT_LT(relative_error(run_backward<T>(a, forward, dout, pages, stream), expected.dq),
              bound<T>);
    Values dk(a.k.size(), -2.0), dv(a.v.size(), -2.0);
    pages.collect(dk, dv);
    const Values zeros(dk.size(), 0.0);
    // Adding 2 and taking it away costs an ulp of 2, against gradients of size 1.
    EXPECT_LT(relative_error(dk, wanted == Gradients::both ? expected.dk : zeros), 2 * bound<T>);
    EXPECT_LT(relative_error(dv, wanted == Gradients::none ? zeros : expected.dv), 2 * bound<T>);
  }
}

TEST(Attention, GradientEqualsFiniteDifferences) {
  Attention a = problem(9, 4, 13, 4, 2, 6);
  const Values dout = random_like(a.q, 4);
  const auto loss = [&] {
    const AttentionResult forward = run<double>(a, Pages<double>(a, 5, all_keys(a)));
    double sum = 0;
    for (size_t i = 0; i < dout.size(); ++i) sum += dout[i] * forward.out[i];
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
  Stream stream;
  const Pages<double> pages(a, 5, all_keys(a), Pages<double>::Gradients::both);
  const AttentionResult forward = run<double>(a, pages);
  const Values dq = run_backward<double>(a, forward, dout, pages, stream);
  Values dk(a.k.size(), 0.0), dv(a.v.size(), 0.0);
  pages.collect(dk, dv);
  // Central differences: step^2 = 1e-10 times a third derivative of order 1, and 1e-16 / step.
  EXPECT_LT(relative_error(dq, differences(a.q)), 1e-9);
  EXPECT_LT(relative_error(dk, differences(a.k)), 1e-9);
  EXPECT_LT(relative_error(dv, differences(a.v)), 1e-9);
}

TEST(Attention, CountsVisiblePairsExactly) {
  Attention a = problem(100, 150, 400, 4, 2, 8);
  for (int64_t& position : a.key_positions) position = position * 3 / 2;  // with gaps
  double pairs = 0;
  for (int64_t i = 0; i < a.queries(); ++i)
    for (int64_t j = 0; j < a.keys(); ++j) pairs += a.sees(i, j) ? 1 : 0;
  const AttentionResult forward = reference::attention(a);
  const Values dout = random_like(a.q, 8);
  using Gradients = Pages<double>::Gradients;
  for (const auto& [wanted, factor] : {std::pair{Gradients::none, 6.0}, {Gradients::both, 10.0}}) {
    const Pages<double> pages(a, 27, all_keys(a), wanted);
    Array<double> out({100, 4, 8}), lse({100, 4}), q({100, 4, 8}, a.q);
    Array<double> workspace = workspace_of<double>(a, pages);
    Stream stream;
    attention(stream, out, lse, q, a.positions, pages, a.scale, workspace);
    run_backward<double>(a, forward, dout, pages, stream);
    EXPECT_EQ(stream.operations().at("longstraw::attention::forward"), 4 * 32 * pairs);
    EXPECT_EQ(stream.operations().at("longstraw::attention::backward"), factor * 32 * pairs);
  }
}

/// Sums of the sizes of the terms of out, dq, dk and dv.
struct Sizes {
  Values out, dq, dk, dv;
};

Sizes term_sizes(const Attention& a, const AttentionResult& forward, const Values& dout) {
  Sizes sizes{Values(a.q.size(), 0.0), Values(a.q.size(), 0.0), Values(a.k.size(), 0.0),
              Values(a.v.size(), 0.0)};
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
        const double ds = a.scale * p * std::abs(dp - delta);
        for (int64_t c = 0; c < a.dim; ++c) {
          sizes.out[row + c] += p * std::abs(a.v[key + c]);
          sizes.dv[key + c] += p * std::abs(dout[row + c]);
          sizes.dq[row + c] += ds * std::abs(a.k[key + c]);
          sizes.dk[key + c] += ds * std::abs(a.q[row + c]);
        }
      }
    }
  return sizes;
}

/// Each term was rounded to bfloat16, by at most 2^-8 of it, when `rounds`; what is done in float32
/// costs as much as it does there, of the largest sum of terms (1 at least: with one key, gradients
/// of scores are differences of terms of that size).
void expect_terms(const Values& got, const Values& expected, const Values& sizes, bool rounds) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 1;
  for (const double size : sizes) largest = std::max(largest, size);
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], (rounds ? 0x1p-8 : 0) * sizes[i] + float_bound * largest) << i;
}

/// Queries and dout stored in Q, keys and values in K, of which one is bfloat16.
template <class Q, class K>
void check_stored(int64_t queries, int64_t first, int64_t keys, int64_t group,
                  int64_t page_tokens) {
  SCOPED_TRACE(str("{} keys in pages of {}, groups of {}", keys, page_tokens, group));
  constexpr bool rounds = std::is_same_v<Q, bfloat16>;
  Attention a = problem(queries, first, keys, 2 * group, 2, 10);
  for (Values* x : {&a.q, &a.k, &a.v}) *x = test::rounded(*x);
  const Values dout = test::rounded(random_like(a.q, 3));
  const AttentionResult expected = reference::attention(a);
  const auto gradient = reference::attention_backward(a, expected, dout);
  const Sizes sizes = term_sizes(a, expected, dout);

  using StoredPages = Pages<K, float>;
  const auto once = [&] {
    const StoredPages pages(a, page_tokens, all_keys(a), StoredPages::Gradients::both);
    const AttentionResult got = run<float, Q>(a, pages);
    Stream stream;
    std::vector<Values> all{got.out, got.lse,
                            run_backward<float, Q>(a, expected, dout, pages, stream),
                            Values(a.k.size(), 0.0), Values(a.v.size(), 0.0)};
    pages.collect(all[3], all[4]);
    return all;
  };
  const auto got = once();
  expect_terms(got[0], expected.out, sizes.out, rounds);
  EXPECT_LT(relative_error(got[1], expected.lse), float_bound);
  expect_terms(got[2], gradient.dq, sizes.dq, rounds);
  expect_terms(got[3], gradient.dk, sizes.dk, rounds);
  expect_terms(got[4], gradient.dv, sizes.dv, rounds);
  EXPECT_EQ(got, once());
  // what is rounded shows
  EXPECT_EQ(keys > 100 && relative_error(got[0], expected.out) > 10 * float_bound,
            keys > 100 && rounds);
}

TEST(AttentionOfBfloat16, EqualsReferenceOfRoundedOperands) {
  for (const int64_t group : {1, 3})
    for (const int64_t keys : {1, 3, 63, 64, 65, 597})
      for (const int64_t page_tokens : {int64_t{64}, keys}) {
        check_stored<bfloat16, bfloat16>(keys, 0, keys, group, page_tokens);
        check_stored<float, bfloat16>(keys, 0, keys, group, page_tokens);
        check_stored<bfloat16, float>(keys, 0, keys, group, page_tokens);
      }
  // tiles that every query sees
  check_stored<bfloat16, bfloat16>(5, 1100, 1105, 3, 700);
  check_stored<float, bfloat16>(300, 1100, 1400, 1, 700);
}

TEST(Attention, RowDotOfBfloat16) {
  Array<float> delta({3}), b({3, 2}, {1, 1, 2, 2, 3, 3.001});
  Array<bfloat16> a({3, 2}, {1, 2, 3, 4, 5, 6});
  Stream stream;
  row_dot(stream, delta, a, b);
  EXPECT_LT(relative_error(delta.values(), {3, 14, 33.006}), 0x1p-22);
}

TEST(Attention, RowDot) {
  Array<double> delta({3}), a({3, 2}, {1, 2, 3, 4, 5, 6}), b({3, 2}, {1, 1, 2, 2, 3, 3});
  Stream stream;
  row_dot(stream, delta, a, b);
  EXPECT_EQ(delta.values(), Values({3, 14, 33}));
}

}  // namespace
}  // namespace longstraw
