// Long prompts of random models with sizes that fit nothing: the exact gradient against central
// differences of the loss, and against one block as long as the prompt. All in float64.
#include "reference/slope.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using reference::largest_relative_difference;
using reference::made_groups;
using reference::MadeRun;

struct LongCase {
  std::string name;
  ModelConfig config;
  int64_t prompt;
  std::vector<int64_t> responses;
  uint64_t seed;
};

void PrintTo(const LongCase& c, std::ostream* out) { *out << c.name; }

std::vector<double> frequencies(int64_t rotary_dim, double theta) {
  std::vector<double> all;
  for (int64_t j = 0; j < rotary_dim / 2; ++j)
    all.push_back(std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(rotary_dim)));
  return all;
}

LongCase untied() {
  ModelConfig c = reference::small_config();
  c.hidden = 37, c.intermediate = 51;
  c.heads = 6, c.kv_heads = 3, c.head_dim = 20;
  c.linear_key_heads = 2, c.linear_value_heads = 6;
  c.linear_key_dim = 7, c.linear_value_dim = 11;
  c.rope.inv_freq = frequencies(6, 1e5);
  c.layers = {LayerKind::linear_attention, LayerKind::full_attention, LayerKind::linear_attention};
  return {"untied", c, 3011, {19, 1, 40}, 11};
}

LongCase tied() {
  ModelConfig c = reference::small_config();
  c.hidden = 29, c.intermediate = 33;
  c.heads = 3, c.kv_heads = 3, c.head_dim = 14;
  c.linear_key_heads = 3, c.linear_value_heads = 9;
  c.linear_key_dim = 5, c.linear_value_dim = 3;
  c.conv_taps = 3;
  c.tied_embeddings = true;
  c.rope.inv_freq = frequencies(14, 1e6);
  c.layers = {LayerKind::full_attention, LayerKind::linear_attention};
  return {"tied", c, 2803, {33, 8}, 12};
}

// Log-probabilities of the responses under the model become, with noise, the old and the reference
// ones: ratios near 1, of which some are clipped.
std::vector<Group> groups_of(const LongCase& c) {
  auto groups = made_groups({{c.prompt, c.responses}}, c.config.vocab, c.seed);
  MadeRun scored(Grid::world(), c.config, groups, {}, DType::float64,
                 {.block_tokens = 1024, .values_only = true, .keep_logprobs = true}, c.seed);
  scored.run_ticks();
  uint64_t counter = 0;
  for (Response& r : groups[0].responses) {
    r.logprobs = r.ref_logprobs = scored.stepper.logprobs().at(r.id);
    for (double& l : r.logprobs) l += 0.1 * reference::normal(c.seed, 5, counter++);
    for (double& l : r.ref_logprobs) l += 0.1 * reference::normal(c.seed, 5, counter++);
  }
  return groups;
}

const ObjectiveSettings objective = [] {
  ObjectiveSettings o;
  o.temperature = 0.9;
  o.old_logprobs = OldLogprobs::given;
  o.kl_loss_coef = 0.05;
  return o;
}();

class LongPrompt : public testing::TestWithParam<LongCase> {};

TEST_P(LongPrompt, ExactGradientIsTheSlopeOfTheLoss) {
  const LongCase& c = GetParam();
  const auto groups = groups_of(c);
  MadeRun run(Grid::world(), c.config, groups, objective, DType::float64,
              {.block_tokens = 640, .page_tokens = 300}, c.seed);
  const auto gradient = run.gradient();
  EXPECT_GT(run.stepper.summary().clip_fraction_low + run.stepper.summary().clip_fraction_high, 0);

  MadeRun values(Grid::world(), c.config, groups, objective, DType::float64,
                 {.block_tokens = 1024, .values_only = true}, c.seed);
  // Curvature: up to 6e5 (h / |w|)^2 of the slope; rounding: some 1e-15 over a change of the loss
  // of 1e-6. Both stay ten times below the tolerance.
  reference::expect_slope_of_loss(values, gradient,
                                  {.directions = 8, .h = 1e-7, .tolerance = 1e-7});
}

TEST_P(LongPrompt, BlocksDoNotMatter) {
  const LongCase& c = GetParam();
  const auto groups = groups_of(c);
  for (GradientMode mode : {GradientMode::exact, GradientMode::frozen}) {
    const auto gradient = [&](int64_t block, int64_t page) {
      return MadeRun(Grid::world(), c.config, groups, objective, DType::float64,
                     {.mode = mode, .block_tokens = block, .page_tokens = page}, c.seed)
          .gradient();
    };
    const Model model(c.config, "model.");
    const auto [error, name] =
        largest_relative_difference(model.parameters, gradient(257, 100), gradient(c.prompt, 4096));
    EXPECT_LT(error, 1e-11) << name_of(mode) << " " << name;  // sums over tokens in another order
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LongPrompt, testing::Values(untied(), tied()),
                         [](const auto& made) { return made.param.name; });

}  // namespace
}  // namespace longstraw
