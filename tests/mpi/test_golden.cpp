// The whole step against an independent implementation (transformers in float64): boundary state,
// hidden states, log-probabilities, losses, gradients by parameter, norm, weights after the step.
#include "reference/golden_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace longstraw {
namespace {

using reference::Array;
using reference::Golden;
using reference::golden_name;
using reference::GoldenRun;

struct Case {
  std::string name;
  std::string objective;
  GradientMode mode;
  DType type;
  int64_t block_tokens;
  int64_t page_tokens;
  int64_t checkpoint_every = 1;
};

std::string label_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return str("{}_{}_{}_{}_b{}_p{}_k{}", c.name, c.objective, name_of(c.mode), name_of(c.type),
             c.block_tokens, c.page_tokens, c.checkpoint_every);
}

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// Stated tolerances of the golden values: what a right program of this precision stays below.
double logprob_tolerance(DType type) { return type == DType::float64 ? 1e-9 : 1e-4; }
double gradient_tolerance(DType type) { return type == DType::float64 ? 1e-8 : 1e-3; }

double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values) most = std::max(most, std::abs(v));
  return most;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

struct TokenMeans {
  double entropy = 0, ratio = 0, ratio_max = 0;
};

TokenMeans token_means(const Golden& golden, const std::string& base, const Scores& responses) {
  TokenMeans means;
  int64_t tokens = 0;
  for (const auto& [id, logprobs] : responses) {
    for (double entropy : golden.array(base + "responses/" + id + "/entropy").values)
      means.entropy += entropy;
    for (double ratio : golden.array(base + "responses/" + id + "/ratio").values) {
      means.ratio += ratio;
      means.ratio_max = std::max(means.ratio_max, ratio);
    }
    tokens += std::ssize(logprobs);
  }
  means.entropy /= static_cast<double>(tokens);
  means.ratio /= static_cast<double>(tokens);
  return means;
}

class GoldenStep : public testing::TestWithParam<Case> {};

TEST_P(GoldenStep, AgreesWithTransformers) {
  const Case c = GetParam();
  const Golden golden(c.name);
  GoldenRun run(golden, c.objective, Grid::world(), c.type,
                {.mode = c.mode,
                 .block_tokens = c.block_tokens,
                 .page_tokens = c.page_tokens,
                 .prompt_checkpoint_every = c.checkpoint_every,
                 .keep_logprobs = true});
  run.run_ticks();
  const std::string base = "objectives/" + c.objective + "/";

  for (const auto& [id, logprobs] : run.stepper.logprobs()) {
    const auto expected = golden.array(base + "responses/" + id + "/logprobs").values;
    EXPECT_LT(largest_difference(logprobs, expected), logprob_tolerance(c.type)) << id;
  }
  const StepSummary summary = run.stepper.summary();
  // A loss is a mean of log-probabilities' functions: the same tolerance.
  EXPECT_NEAR(summary.loss, golden.scalar(base + "loss"), logprob_tolerance(c.type));
  EXPECT_NEAR(summary.pg_loss, golden.scalar(base + "pg_loss"), logprob_tolerance(c.type));
  EXPECT_NEAR(summary.kl_loss, golden.scalar(base + "kl_loss"), logprob_tolerance(c.type));

  const TokenMeans means = token_means(golden, base, run.stepper.logprobs());
  EXPECT_NEAR(summary.entropy, means.entropy, logprob_tolerance(c.type));
  // Ratios are exponentials of differences of log-probabilities, up to e^2 here.
  EXPECT_NEAR(summary.ratio_mean, means.ratio, 10 * logprob_tolerance(c.type));
  EXPECT_NEAR(summary.ratio_max, means.ratio_max, 10 * logprob_tolerance(c.type));

  const ReducedGradient reduced(run.context);
  const double norm = reduced.norm(run.grid, run.stream);
  const std::string mode = base + name_of(c.mode);
  const double expected_norm = golden.scalar(mode + "/grad_norm");
  EXPECT_NEAR(norm, expected_norm, gradient_tolerance(c.type) * expected_norm);
  const auto gradient = run.whole(reduced);
  for (const Parameter& p : run.model.parameters.all()) {
    const auto expected = golden.array(mode + "/grad/" + golden_name(p.name)).values;
    const std::vector<double> got(gradient.begin() + p.offset,
                                  gradient.begin() + p.offset + p.size);
    EXPECT_LT(largest_difference(got, expected), gradient_tolerance(c.type) * largest(expected))
        << p.name;
  }

  if (!golden.has(mode + "/after_step")) return;
  run.optimizer.update(run.stream, run.parameters, reduced, norm,
                       golden.description().at("optimizer").at("lr"));
  const auto weights = GoldenRun::values(run.parameters.weights());
  for (const Parameter& p : run.model.parameters.all()) {
    const auto expected = golden.array(mode + "/after_step/" + golden_name(p.name)).values;
    const std::vector<double> got(weights.begin() + p.offset, weights.begin() + p.offset + p.size);
    // The first step moves a weight by lr * sign(gradient) nearly whatever its size: where the
    // gradient is rounding, float32 may move it the other way, by at most 2 lr.
    const double bound = c.type == DType::float64 ? 1e-9 : 2.1e-3;
    EXPECT_LT(largest_difference(got, expected), bound) << p.name;
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const std::pair<const char*, const char*> objectives[] = {{"hybrid", "plain"},
                                                            {"hybrid", "full"},
                                                            {"hybrid_tied_bf16", "plain"},
                                                            {"hybrid_tied_bf16", "constant"},
                                                            {"hybrid_yarn", "plain"}};
  for (const auto& [name, objective] : objectives)
    for (GradientMode mode : {GradientMode::frozen, GradientMode::exact})
      for (DType type : {DType::float64, DType::float32})
        all.push_back({name, objective, mode, type, 64, 32});
  for (GradientMode mode : {GradientMode::frozen, GradientMode::exact})
    for (const auto& [block, page, every] :
         {std::tuple{1, 1, 5}, {7, 5, 2}, {64, 1000, 2}, {4096, 4096, 1}, {7, 64, 1}})
      for (const char* name : {"hybrid", "hybrid_yarn"})
        all.push_back({name, "plain", mode, DType::float64, block, page, every});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenStep, testing::ValuesIn(cases()), label_of);

}  // namespace
}  // namespace longstraw
