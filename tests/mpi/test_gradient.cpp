// What must hold of the reduced gradient on any number of ranks: rule G, the same gradient on other
// rank counts, the same bits twice and for every spacing of the prompt's saved states.
#include "reference/golden_run.hpp"
#include "reference/made_case.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using reference::Golden;
using reference::golden_name;
using reference::GoldenRun;
using reference::largest_relative_difference;
using reference::MadeRun;

constexpr GradientMode both_modes[] = {GradientMode::frozen, GradientMode::exact};

std::vector<double> golden_gradient(const Golden& golden, const ParameterList& list,
                                    GradientMode mode) {
  std::vector<double> all;
  for (const Parameter& p : list.all()) {
    const auto values =
        golden.array(str("objectives/plain/{}/grad/{}", name_of(mode), golden_name(p.name))).values;
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Rule G: every contribution is made once, on one rank, so that the plain sum over ranks is the
// gradient: no sum is too little, and a second one too much.
TEST(RuleG, TheGradientIsTheSumOverRanksTakenOnce) {
  const Golden golden("hybrid");
  for (GradientMode mode : both_modes) {
    GoldenRun run(golden, "plain", Grid::world(), DType::float64,
                  {.mode = mode, .block_tokens = 64, .page_tokens = 32});
    const auto expected = golden_gradient(golden, run.model.parameters, mode);
    const auto error = [&](const std::vector<double>& gradient) {
      return largest_relative_difference(run.model.parameters, gradient, expected).first;
    };
    run.run_ticks();
    const Tensor& own = run.parameters.gradients();
    const double alone = error(GoldenRun::values(own));
    const ReducedGradient once(run.context);
    const double reduced = error(run.whole(once));
    once.gather(run.grid, own, {0, run.model.parameters.size()});
    const double twice = error(run.whole(ReducedGradient(run.context)));

    // as for the golden gradients; a part that is missing or twice there is of the size of the
    // whole
    EXPECT_LT(reduced, 1e-8) << name_of(mode);
    if (run.grid.size() == 1) {
      EXPECT_EQ(alone, reduced);
      EXPECT_EQ(twice, reduced);
    } else {
      EXPECT_GT(alone, 0.1) << name_of(mode);
      EXPECT_GT(twice, 0.9) << name_of(mode);
    }
  }
}

// Two groups, one of them with a prompt shorter than a block and a response longer than one.
std::vector<Group> two_groups(const ModelConfig& config) {
  return reference::made_groups(
      {{.prompt = 131, .responses = {5, 1, 33}}, {.prompt = 14, .responses = {70, 2, 9}}},
      config.vocab, 3);
}

ObjectiveSettings with_kl() {
  ObjectiveSettings o;
  o.old_logprobs = OldLogprobs::given;
  o.kl_loss_coef = 0.05;
  return o;
}

TEST(Gradient, IsTheSameOnAnyNumberOfRanks) {
  const ModelConfig config = reference::small_config();
  const auto groups = two_groups(config);
  const Grid world = Grid::world(), alone(MPI_COMM_SELF);
  for (GradientMode mode : both_modes) {
    const StepperSettings settings{.mode = mode, .block_tokens = 31, .page_tokens = 16};
    MadeRun here(alone, config, groups, with_kl(), DType::float64, settings);
    MadeRun together(world, config, groups, with_kl(), DType::float64, settings);
    const auto expected = here.gradient(), got = together.gradient();
    const auto [error, name] = largest_relative_difference(here.model.parameters, got, expected);
    EXPECT_LT(error, 1e-10) << name_of(mode) << " " << name;  // sums in another order
    EXPECT_NEAR(together.stepper.summary().loss, here.stepper.summary().loss, 1e-13);
  }
}

TEST(Gradient, HasTheSameBitsTwice) {
  const ModelConfig config = reference::small_config();
  const auto groups = two_groups(config);
  for (GradientMode mode : both_modes)
    for (DType type : {DType::float32, DType::float64}) {
      const auto gradient = [&] {
        return MadeRun(Grid::world(), config, groups, with_kl(), type,
                       {.mode = mode, .block_tokens = 31, .page_tokens = 16})
            .gradient();
      };
      EXPECT_EQ(gradient(), gradient()) << name_of(mode);
    }
}

TEST(Gradient, HasTheSameBitsForEverySpacingOfSavedStates) {
  const ModelConfig config = reference::small_config();
  const auto groups = two_groups(config);
  for (DType type : {DType::float32, DType::float64}) {
    std::vector<double> first;
    int64_t saved_every_block = 0;
    for (int64_t every : {1, 2, 5, 100}) {
      MadeRun run(Grid::world(), config, groups, with_kl(), type,
                  {.mode = GradientMode::exact,
                   .block_tokens = 15,
                   .page_tokens = 16,
                   .prompt_checkpoint_every = every});
      const auto gradient = run.gradient();
      if (every == 1) {
        first = gradient;
        saved_every_block = run.peak("saved states");
      }
      EXPECT_EQ(gradient, first) << every;
      // nine blocks: states of the first and the sixth, and those between the sixth and the last
      if (every == 5) {
        EXPECT_LT(run.peak("saved states"), saved_every_block);
      }
    }
  }
}

TEST(Gradient, SpacingBySizeWeighsStatesAgainstPages) {
  ModelConfig config = reference::small_config();
  // states 2 x (4 x 6 x 10 + 3 x 64) = 864 elements, pages 48 a token
  EXPECT_EQ(prompt_checkpoints_by_size(config, 2048), 1);
  EXPECT_EQ(prompt_checkpoints_by_size(config, 18), 1);
  EXPECT_EQ(prompt_checkpoints_by_size(config, 17), 2);
  EXPECT_EQ(prompt_checkpoints_by_size(config, 2), 9);
  EXPECT_EQ(prompt_checkpoints_by_size(config, 1), 16);
  config.layers = {LayerKind::linear_attention};
  EXPECT_EQ(prompt_checkpoints_by_size(config, 2048), 16);
  config.layers = {LayerKind::full_attention};
  EXPECT_EQ(prompt_checkpoints_by_size(config, 2048), 1);
}

}  // namespace
}  // namespace longstraw
