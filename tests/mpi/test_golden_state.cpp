// Hidden states by layer and the retained state at the prompt's boundary against an independent
// implementation (transformers in float64).
#include "longstraw/kernels/norm.hpp"
#include "reference/golden_run.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace longstraw {
namespace {

using reference::Golden;
using reference::GoldenRun;

const Grid& grid() {
  static const Grid world = Grid::world();
  return world;
}

// Rows that the ranks' slices hold, one after the other, in double.
std::vector<double> gathered(GoldenRun& run, const Block& block, const Tensor& rows) {
  Field all(run.ledger, "test", rows.type(), {block.tokens(), rows.row_size()});
  grid().all_gather_rows(all, rows, block.slice_sizes);
  return GoldenRun::values(all);
}

void expect_close(const std::vector<double>& got, const std::vector<double>& expected,
                  double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double most = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(got[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  EXPECT_LT(most, tolerance * largest) << what;
}

// Relative to the largest value. float64: two computations of the same formulas; float32: as for
// log-probabilities.
double tolerance(DType type) { return type == DType::float64 ? 1e-11 : 1e-4; }

class GoldenState : public testing::TestWithParam<std::tuple<const char*, DType>> {};

TEST_P(GoldenState, HiddenStatesOfPromptAndResponse) {
  const auto& [name, type] = GetParam();
  const Golden golden(name);
  GoldenRun run(golden, "plain", grid(), type, {});
  const Group& group = *run.groups[0];
  std::vector<int32_t> ids = group.prompt.ids({0, group.prompt.size()});
  ids.insert(ids.end(), group.responses[0].ids.begin(), group.responses[0].ids.end() - 1);
  const auto shapes = run.model.decoder.state_shapes(grid());
  SequenceState state(run.context, shapes, 16);
  const Block block = make_block(grid(), {0, std::ssize(ids)}, [&](Range slice) {
    return std::vector<int32_t>(ids.begin() + slice.begin, ids.begin() + slice.end);
  });
  state.open(block.mine.size());
  BlockRecord record;
  const Field x = run.model.decoder.forward({run.context, block, state}, &record);
  const size_t layers = record.layers.size();
  for (size_t l = 0; l < layers; ++l)
    expect_close(gathered(run, block, record.layers[l].before_mixer),
                 golden.array(str("hidden/{}", l)).values, tolerance(type), str("layer {}", l));
  const Field normed(run.ledger, "test", type, {x.tensor().extent(0), x.tensor().extent(1)});
  rms_norm(run.stream, normed, x, run.parameters.weight_vector(run.model.head.norm()),
           NormWeight::zero_centred, run.model.config.norm_eps);
  expect_close(gathered(run, block, normed), golden.array(str("hidden/{}", layers)).values,
               tolerance(type), "final norm");
}

// Every rank's rows of one layer put in the order of their positions.
std::vector<double> boundary_rows(const SequenceState& state, int layer, int index,
                                  int64_t tokens) {
  const PagedRows& rows = state.layer(layer).paged[index];
  std::vector<double> all(tokens * rows.width(), 0.0);
  for (int p = 0; p < rows.page_count(); ++p) {
    const auto values = GoldenRun::values(rows.page(p));
    for (int64_t i = 0; i < rows.range(p).size(); ++i)
      std::copy_n(values.begin() + i * rows.width(), rows.width(),
                  all.begin() + state.positions()[rows.range(p).begin + i] * rows.width());
  }
  grid().sum(all);
  return all;
}

TEST_P(GoldenState, BoundaryStateOfTheCapturedPrompt) {
  const auto& [name, type] = GetParam();
  const Golden golden(name);
  GoldenRun run(golden, "plain", grid(), type,
                {.mode = GradientMode::frozen, .block_tokens = 40, .page_tokens = 16});
  for (Tick tick = first_tick(0, run.plan); tick.kind == TickKind::capture_block;
       tick = next_tick(tick, run.plan))
    run.stepper.perform(tick);
  const SequenceState& state = run.stepper.sequence();
  const int64_t tokens = run.groups[0]->prompt.size() - 1;
  for (int l = 0; l < state.layer_count(); ++l) {
    const std::string base = str("boundary/{}/", l);
    if (golden.has(base + "keys")) {
      for (const auto& [index, part] : {std::pair{0, "keys"}, std::pair{1, "values"}})
        expect_close(boundary_rows(state, l, index, tokens), golden.array(base + part).values,
                     tolerance(type), base + part);
      continue;
    }
    // Each rank holds a contiguous range of value heads.
    const auto expected = golden.array(base + "recurrent_states").values;
    const auto own = GoldenRun::values(state.layer(l).carried[0]);
    const int64_t heads = run.model.config.linear_value_heads;
    const int64_t head_size = static_cast<int64_t>(expected.size()) / heads;
    const Range mine = grid().mine(heads);
    std::vector<double> all(expected.size(), 0.0);
    std::copy(own.begin(), own.end(), all.begin() + mine.begin * head_size);
    grid().sum(all);
    expect_close(all, expected, tolerance(type), base + "recurrent_states");
  }
}

TEST_P(GoldenState, ConvolutionTailOfTheCapturedPrompt) {
  if (grid().size() > 1) return;  // one rank holds all channels, in the checkpoint's order
  const auto& [name, type] = GetParam();
  const Golden golden(name);
  GoldenRun run(golden, "plain", grid(), type,
                {.mode = GradientMode::frozen, .block_tokens = 40, .page_tokens = 16});
  for (Tick tick = first_tick(0, run.plan); tick.kind == TickKind::capture_block;
       tick = next_tick(tick, run.plan))
    run.stepper.perform(tick);
  for (int l = 0; l < run.stepper.sequence().layer_count(); ++l) {
    const std::string path = str("boundary/{}/conv_states", l);
    if (golden.has(path))
      expect_close(GoldenRun::values(run.stepper.sequence().layer(l).carried[1]),
                   golden.array(path).values, tolerance(type), path);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenState,
                         testing::Combine(testing::Values("hybrid", "hybrid_tied_bf16",
                                                          "hybrid_yarn"),
                                          testing::Values(DType::float64, DType::float32)),
                         [](const auto& param) {
                           return str("{}_{}", std::get<0>(param.param),
                                      name_of(std::get<1>(param.param)));
                         });

}  // namespace
}  // namespace longstraw
