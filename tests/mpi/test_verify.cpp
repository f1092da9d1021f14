// `verify` on the golden cases: its distances against transformers', its checks, and that they can
// fail.
#include "longstraw/sim/verify.hpp"

#include "longstraw/io/gradients.hpp"
#include "reference/golden_run.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using reference::Golden;
using reference::objective_of;
using support::expect_parts;
using support::refusal_of;
using support::TemporaryFolder;

const Grid& world() {
  static const Grid grid = Grid::world();
  return grid;
}

Problem problem_of(const Golden& golden, const std::string& objective, DType type) {
  Settings settings;
  settings.checkpoint = golden.model();
  settings.precision = type;
  settings.rollouts.file = golden.rollouts();
  settings.rollouts.groups_per_step = std::ssize(golden.description().at("groups"));
  settings.objective = objective_of(golden.objective(objective));
  settings.stepper.block_tokens = 40;
  settings.stepper.page_tokens = 16;
  return open_problem(settings, world());
}

class VerifyGolden : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(VerifyGolden, DistancesAreThoseOfTransformersAndBoundsAreHeld) {
  const auto [name, objective] = GetParam();
  const Golden golden(name);
  for (DType type : {DType::float64, DType::float32}) {
    const Problem problem = problem_of(golden, objective, type);
    const VerifyReport report = verify(problem, {.directions = 1}, world());
    const std::string path = str("objectives/{}/distance/", objective);
    // the golden gradients' tolerances
    const double tolerance = type == DType::float64 ? 1e-8 : 1e-3;
    const Distance all = total(report.frozen);
    EXPECT_NEAR(all.relative_l2(), golden.scalar(path + "relative_l2"), tolerance);
    EXPECT_NEAR(all.cosine(), golden.scalar(path + "cosine"), tolerance);
    for (const auto& parts : {by_layer(report.frozen), by_kind(report.frozen)}) {
      const Distance sum = total(parts);
      EXPECT_NEAR(sum.difference, all.difference, 1e-12 * all.difference);
      EXPECT_NEAR(sum.product, all.product, 1e-12 * all.other);
    }
    EXPECT_TRUE(report.held()) << verify_json(problem, report);
    int64_t responses = 0;
    for (const Group& group : problem.rollouts.groups) responses += std::ssize(group.responses);
    EXPECT_EQ(report.groups, std::ssize(problem.rollouts.groups));
    EXPECT_EQ(report.responses, responses);
    EXPECT_EQ(report.differences.size(), type == DType::float64 ? 2u : 4u);
    EXPECT_EQ(report.rounding.size(), type == DType::float64 ? 0u : 1u);
    for (const auto& check : report.differences) EXPECT_TRUE(check.smooth) << check.direction;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, VerifyGolden,
                         testing::Values(std::pair{"hybrid", "plain"}, std::pair{"hybrid", "full"},
                                         std::pair{"hybrid_tied_bf16", "plain"},
                                         std::pair{"hybrid_yarn", "plain"}),
                         [](const auto& made) {
                           return str("{}_{}", made.param.first, made.param.second);
                         });

TEST(Verify, LayersAndKindsKeepTheOrderOfTheModel) {
  const Problem problem = problem_of(Golden("hybrid"), "plain", DType::float64);
  const VerifyReport report = verify(problem, {.directions = 0}, world());
  std::vector<std::string> layers, kinds;
  for (const auto& part : by_layer(report.frozen)) layers.push_back(part.name);
  for (const auto& part : by_kind(report.frozen)) kinds.push_back(part.name);
  EXPECT_EQ(layers, (std::vector<std::string>{"embed_tokens", "layer 0", "layer 1", "layer 2",
                                              "layer 3", "norm", "lm_head"}));
  EXPECT_EQ(kinds.front(), "embed_tokens");
  for (const char* kind : {"linear_attn.A_log", "self_attn.k_proj", "mlp.down_proj", "lm_head"})
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), kind), 1) << kind;
  EXPECT_TRUE(report.differences.empty());
}

// A gradient that lacks the part through the prompt is not the slope of the loss.
TEST(Verify, DifferencesTellAWrongGradient) {
  const Problem problem = problem_of(Golden("hybrid"), "plain", DType::float64);
  for (DType type : {DType::float64, DType::float32}) {
    Ledger ledger;
    Progress progress(1, false);
    FirstStep step(problem, type, world(), ledger, progress);
    const auto frozen = step.gradient(GradientMode::frozen);
    int told = 0;
    for (const auto& check : step.differences(frozen, 3)) told += !check.held();
    // What is missing is little along some directions, which float32 cannot tell.
    EXPECT_GE(told, type == DType::float64 ? 4 : 1);
    // The weights are as they were.
    const auto exact = step.gradient(GradientMode::exact);
    for (const auto& check : step.differences(exact, 3))
      EXPECT_TRUE(check.held()) << check.direction << " " << check.error.value;
  }
}

// Writes a gradient file of the golden model: `value` of each element.
void write_file(const std::string& path, const Problem& problem, GradientFile facts,
                const ReducedGradient& gradient, double factor) {
  std::vector<NamedShape> shapes;
  for (const Parameter& p : problem.model.parameters.all()) shapes.push_back({p.name, p.shape});
  Ledger ledger;
  facts.path = path;
  write_gradients(
      facts, shapes, world(), ledger, DType::float64,
      [&](const std::string& name, Range elements, const Tensor& values) {
        for (const Parameter& p : problem.model.parameters.all())
          if (p.name == name)
            gradient.gather(world(), values, {p.offset + elements.begin, p.offset + elements.end});
        if (name == "model.layers.1.self_attn.k_proj.weight")
          for (int64_t i = 0; i < values.size(); ++i) values.data<double>()[i] *= factor;
        return true;
      });
  world().barrier();
}

TEST(Verify, ComparesWithTheGradientOfAnotherRun) {
  const TemporaryFolder folder;
  const Problem problem = problem_of(Golden("hybrid"), "plain", DType::float64);
  Ledger ledger;
  Progress progress(1, false);
  FirstStep step(problem, DType::float64, world(), ledger, progress);
  const std::string file = folder / "gradient-0.h5";
  for (GradientMode mode : {GradientMode::exact, GradientMode::frozen}) {
    const auto gradient = step.gradient(mode);
    for (double off : {0.0, 1e-11, 1e-6}) {
      write_file(file, problem, {.path = {}, .mode = name_of(mode), .step = 0}, gradient, 1 + off);
      const VerifyOptions options{.directions = 0, .against = file};
      check_verify(problem, options, world());
      const VerifyReport report = verify(problem, options, world());
      ASSERT_EQ(report.rounding.size(), 1u);
      const RoundingCheck& check = report.rounding[0];
      // both stored and multiplied in float64
      EXPECT_NEAR(check.error.value, off / (1 + off), 1e-15);
      EXPECT_EQ(report.held(), off < 1e-10);
      if (off > 0) {
        EXPECT_EQ(check.largest.name, "model.layers.1.self_attn.k_proj.weight");
      }
      expect_parts(check.of, {name_of(mode), file});
    }
  }
}

TEST(Verify, RefusesWhatItCannotCompareBeforeItComputes) {
  const TemporaryFolder folder;
  const Problem problem = problem_of(Golden("hybrid"), "plain", DType::float64);
  const Problem other = problem_of(Golden("hybrid_tied_bf16"), "plain", DType::float64);
  Ledger ledger;
  Progress progress(1, false);
  FirstStep step(problem, DType::float64, world(), ledger, progress);
  const auto gradient = step.gradient(GradientMode::frozen);
  const std::string file = folder / "gradient.h5";
  const auto refused = [&](const Problem& by, const std::string& against) {
    const auto refusal =
        refusal_of([&] { check_verify(by, {.directions = 2, .against = against}, world()); });
    EXPECT_TRUE(refusal.everywhere) << against;
    return refusal.message;
  };
  write_file(file, problem, {.path = {}, .mode = "exact", .step = 3}, gradient, 1);
  expect_parts(refused(problem, file), {file, "step 4"});
  write_file(file, problem, {.path = {}, .mode = "exact", .step = 0}, gradient, 1);
  expect_parts(refused(other, file), {file, "model.language_model", "not of this model"});
  expect_parts(refused(problem, folder / "none.h5"), {folder / "none.h5", "HDF5"});
  folder.prepare([&] { support::put(folder / "text.h5", "no HDF5"); });
  expect_parts(refused(problem, folder / "text.h5"), {folder / "text.h5", "HDF5"});

  Problem equal = problem_of(Golden("hybrid"), "plain", DType::float64);
  for (Group& group : equal.rollouts.groups)
    for (Response& response : group.responses) response.reward = 1;
  expect_parts(refused(equal, ""), {"first step", "rewards"});
}

TEST(Verify, TellsPeopleAndProgramsTheSame) {
  const Problem problem = problem_of(Golden("hybrid"), "plain", DType::float32);
  const VerifyReport report = verify(problem, {.directions = 1}, world());
  std::string text;
  for (const auto& line : verify_lines(problem, report)) {
    EXPECT_LE(line.size(), 110u) << line;
    text += line + '\n';
  }
  expect_parts(text, {"layer 3 (full_attention)", "layer 0 (linear_attention)", "self_attn.k_proj",
                      "random 1", "float64", "held", "loss"});
  const auto json = nlohmann::json::parse(verify_json(problem, report));
  EXPECT_EQ(json.at("held"), true);
  EXPECT_EQ(json.at("ranks"), world().size());
  EXPECT_EQ(json.at("frozen_against_exact").at("all").at("relative_l2").get<double>(),
            total(report.frozen).relative_l2());
  EXPECT_EQ(json.at("frozen_against_exact").at("by_parameter").size(),
            problem.model.parameters.all().size());
  EXPECT_EQ(json.at("differences").size(), report.differences.size());
  EXPECT_EQ(json.at("rounding").size(), report.rounding.size());
  for (const char* key : {"h", "by_gradient", "by_loss", "relative_error", "bound", "reason"})
    EXPECT_TRUE(json.at("differences")[0].contains(key)) << key;
}

}  // namespace
}  // namespace longstraw
