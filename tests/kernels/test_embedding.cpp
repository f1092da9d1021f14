#include "longstraw/kernels/embedding.hpp"

#include "kernels/support.hpp"
#include "reference/embedding.hpp"

#include <limits>

namespace longstraw::test {
namespace {

std::vector<int32_t> random_ids(int64_t count, int64_t vocab, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(vocab) - 1);
  std::vector<int32_t> ids(count);
  for (int32_t& value : ids) value = id(engine);
  return ids;
}

TEST(Embed, RowsAndTheirGradient) {
  Stream stream;
  for (const DType type : {DType::float32, DType::float64})
    for (const int64_t tokens : sizes_and_none)
      for (const int64_t hidden : {int64_t{1}, int64_t{65}, int64_t{1025}}) {
        const int64_t vocab = 7;  // so that tokens repeat
        const auto ids = random_ids(tokens, vocab, 3);
        const Array rows = random_array(vocab * hidden, 1);
        Held table(type, {vocab, hidden}, rows), x(type, {tokens, hidden}, 9.0, 3);
        embed(stream, x, table, ids);
        const Array dx_values = random_array(tokens * hidden, 2);
        Array picked, should(vocab * hidden, 0.5);
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t c = 0; c < hidden; ++c) {
            picked.push_back(rows[ids[t] * hidden + c]);
            should[ids[t] * hidden + c] += dx_values[t * hidden + c];
          }
        EXPECT_EQ(x.values(), picked);
        Held dx(type, {tokens, hidden}, dx_values, 3), dtable(type, {vocab, hidden}, 0.5);
        embed_backward(stream, dtable, dx, ids);
        // a running sum of about tokens / vocab terms
        expect_close(dtable.values(), should, (2 + tokens / 7.0) * epsilon(type), "dtable");
      }
}

struct LogProbs {
  Array logprob, entropy, normaliser;
};

LogProbs run_log_prob(DType type, int64_t tokens, int64_t vocab, const Array& x,
                      const std::vector<int32_t>& targets, double temperature) {
  Stream stream;
  Held logits(type, {tokens, vocab}, x, 5);
  LogProbs out{Array(tokens), Array(tokens), Array(tokens)};
  log_prob(stream, out.logprob, out.entropy, out.normaliser, logits, targets, temperature);
  return out;
}

Array run_log_prob_backward(DType type, int64_t vocab, const Array& x,
                            const std::vector<int32_t>& targets, double temperature,
                            const Array& dlogprob) {
  Stream stream;
  const auto tokens = static_cast<int64_t>(targets.size());
  const LogProbs forward = run_log_prob(type, tokens, vocab, x, targets, temperature);
  Held logits(type, {tokens, vocab}, x, 5);
  log_prob_backward(stream, logits, dlogprob, forward.normaliser, targets, temperature);
  return logits.values();
}

/// Roundings of a float logit's exponential: the difference, its scaling, the polynomial and the
/// sum.
constexpr double roundings = 16;

void check_log_probs(int64_t tokens, int64_t vocab, double temperature) {
  const Array x = random_array(tokens * vocab, 1, 4.0);
  const auto targets = random_ids(tokens, vocab, 2);
  for (const DType type : {DType::float32, DType::float64}) {
    const LogProbs is = run_log_prob(type, tokens, vocab, x, targets, temperature);
    for (int64_t t = 0; t < tokens; ++t) {
      const Array row(x.begin() + t * vocab, x.begin() + (t + 1) * vocab);
      const auto should = reference::log_prob(row, targets[t], temperature);
      // the values themselves are of size ten to forty
      const double tolerance = roundings * epsilon(type) + 64 * 0x1p-52;
      EXPECT_NEAR(is.logprob[t], should.logprob, tolerance);
      EXPECT_NEAR(is.entropy[t], should.entropy, tolerance * (1 + should.entropy));
      EXPECT_NEAR(is.normaliser[t], should.normaliser, tolerance);
    }
    EXPECT_EQ(is.entropy, run_log_prob(type, tokens, vocab, x, targets, temperature).entropy);
  }
}

TEST(LogProb, Values) {
  for (const double temperature : {1.0, 0.7, 2.5})
    for (const int64_t tokens : sizes_and_none)
      for (const int64_t vocab : sizes) check_log_probs(tokens, vocab, temperature);
  check_log_probs(2, 250000, 1.0);
}

TEST(LogProb, Gradient) {
  for (const double temperature : {1.0, 0.7})
    for (const int64_t vocab : sizes) {
      const int64_t tokens = 3;
      const Array x = random_array(tokens * vocab, 1, 2.0), dlogprob = random_array(tokens, 3);
      const auto targets = random_ids(tokens, vocab, 2);
      const Array exact =
          run_log_prob_backward(DType::float64, vocab, x, targets, temperature, dlogprob);
      const double step = 1e-3;
      const auto loss = [&](int64_t i, double by) {
        Array moved = x;
        moved[i] += by;
        const Array l =
            run_log_prob(DType::float64, tokens, vocab, moved, targets, temperature).logprob;
        return l[0] * dlogprob[0] + l[1] * dlogprob[1] + l[2] * dlogprob[2];
      };
      for (int64_t i = 0; i<tokens * vocab; i += vocab> 100 ? 17 : 1) {
        const double slope =
            (8 * (loss(i, step) - loss(i, -step)) - (loss(i, 2 * step) - loss(i, -2 * step))) /
            (12 * step);
        // cut-off step^4 times a fifth derivative of a few units; rounding of the loss / step
        EXPECT_NEAR(exact[i], slope, 2e-11);
      }
      const Array single =
          run_log_prob_backward(DType::float32, vocab, x, targets, temperature, dlogprob);
      expect_close(single, exact, roundings * epsilon(DType::float32), "float32");
      EXPECT_EQ(single,
                run_log_prob_backward(DType::float32, vocab, x, targets, temperature, dlogprob));
    }
}

TEST(LogProb, ExtremeLogits) {
  const double inf = std::numeric_limits<double>::infinity();
  // far beyond the exponential's range, and a token that is ruled out
  const Array x = {1e4, 1e4 - 1, -1e4, -inf};
  for (const DType type : {DType::float32, DType::float64}) {
    const LogProbs is = run_log_prob(type, 1, 4, x, {1}, 1.0);
    const double p = 1 / (1 + std::exp(1.0));
    const double tolerance = 4 * epsilon(type);
    EXPECT_NEAR(is.logprob[0], std::log(p), tolerance);
    EXPECT_NEAR(is.entropy[0], -p * std::log(p) - (1 - p) * std::log(1 - p), tolerance);
    const Array gradient = run_log_prob_backward(type, 4, x, {1}, 1.0, {1.0});
    // the normaliser, 1e4, is known to 1e4 2^-53
    EXPECT_NEAR(gradient[0], -(1 - p), tolerance + 2e-12);
    EXPECT_NEAR(gradient[1], 1 - p, tolerance + 2e-12);
    EXPECT_EQ(gradient[2], 0);
    EXPECT_EQ(gradient[3], 0);
  }
}

TEST(LogProb, NotANumberShows) {
  const LogProbs is = run_log_prob(DType::float32, 1, 3, {1.0, NAN, 2.0}, {0}, 1.0);
  EXPECT_TRUE(std::isnan(is.logprob[0]));
  EXPECT_TRUE(std::isnan(is.normaliser[0]));
}

TEST(Embed, TableOfBfloat16) {
  Stream stream;
  for (const int64_t hidden : sizes) {
    const Array values = random_array(5 * hidden, 1), kept = rounded(values);
    const std::vector<int32_t> ids = {4, 0, 0, 3};
    const Held table(DType::bfloat16, {5, hidden}, values, 3);
    Held x(DType::float32, {4, hidden}, 9.0, 2);
    embed(stream, x, table, ids);
    Array should;
    for (const int32_t id : ids)
      should.insert(should.end(), kept.begin() + id * hidden, kept.begin() + (id + 1) * hidden);
    EXPECT_EQ(x.values(), should);
  }
}

}  // namespace
}  // namespace longstraw::test
