// Memory of a step, to the byte: what depends on the group's size, on the prompt's length and on
// the gradient's mode, computed from the model's sizes.
#include "reference/made_case.hpp"

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using reference::Lengths;
using reference::MadeRun;

constexpr GradientMode both_modes[] = {GradientMode::frozen, GradientMode::exact};
constexpr int64_t block = 24, page = 10;
constexpr int64_t element = 8;  // float64

struct Peak {
  int64_t total = 0;
  std::map<std::string, int64_t> by_label;
  int64_t operator[](const std::string& label) const {
    const auto found = by_label.find(label);
    return found == by_label.end() ? 0 : found->second;
  }
};

Peak peak_of(GradientMode mode, const Lengths& lengths) {
  const ModelConfig config = reference::small_config();
  const auto groups = reference::made_groups({lengths}, config.vocab, 5);
  MadeRun run(
      Grid::world(), config, groups, {}, DType::float64,
      {.mode = mode, .block_tokens = block, .page_tokens = page, .prompt_checkpoint_every = 1});
  run.run_ticks();
  Peak peak{.total = run.ledger.total().peak, .by_label = {}};
  for (const auto& [label, entry] : run.ledger.entries()) peak.by_label[label] = entry.peak;
  return peak;
}

// The rank's tokens of a sequence that is cut into blocks.
int64_t local_tokens(int64_t tokens) {
  int64_t local = 0;
  for (int64_t begin = 0; begin < tokens; begin += block)
    local += Grid::world().mine(std::min(block, tokens - begin)).size();
  return local;
}

int64_t layers_of(LayerKind kind) {
  const auto layers = reference::small_config().layers;
  return std::count(layers.begin(), layers.end(), kind);
}

// Keys and values of `tokens` tokens of a sequence.
int64_t page_bytes(int64_t tokens) {
  const ModelConfig c = reference::small_config();
  return local_tokens(tokens) * layers_of(LayerKind::full_attention) * 2 * c.kv_heads * c.head_dim *
         element;
}

// Positions of `tokens` tokens of a sequence.
int64_t position_bytes(int64_t tokens) { return local_tokens(tokens) * int64_t{sizeof(int64_t)}; }

// Recurrent and convolution states of all layers, once: the value heads of this rank, and the
// channels of these and of the key heads that they use.
int64_t state_bytes() {
  const ModelConfig c = reference::small_config();
  const Range values = Grid::world().mine(c.linear_value_heads);
  const int64_t values_per_key = c.linear_value_heads / c.linear_key_heads;
  int64_t keys = 0;
  for (int64_t k = 0; k < c.linear_key_heads; ++k)
    keys +=
        std::max(values.begin, k * values_per_key) < std::min(values.end, (k + 1) * values_per_key);
  const int64_t channels = 2 * keys * c.linear_key_dim + values.size() * c.linear_value_dim;
  return layers_of(LayerKind::linear_attention) * element *
         (values.size() * c.linear_key_dim * c.linear_value_dim + (c.conv_taps - 1) * channels);
}

TEST(LedgerOfAStep, IsTheSameForAnyGroupSize) {
  for (GradientMode mode : both_modes) {
    const auto peak = [&](int64_t members) {
      return peak_of(mode, {.prompt = 61, .responses = std::vector<int64_t>(members, 7)});
    };
    const Peak two = peak(2);
    EXPECT_GT(two.total, 0);
    for (int64_t members : {8, 16, 64}) {
      const Peak more = peak(members);
      EXPECT_EQ(more.total, two.total) << name_of(mode) << " " << members;
      EXPECT_EQ(more.by_label, two.by_label) << name_of(mode) << " " << members;
    }
  }
}

// Prompts of one block, of ten, and of lengths between; responses of one whole block, so that the
// largest block is the same for all.
const std::vector<int64_t> prompts = {block + 1, 3 * block + 8, 5 * block + 1, 10 * block + 1};

TEST(LedgerOfAStep, FrozenGrowsWithThePromptByItsPagesAndPositionsOnly) {
  const auto peak = [](int64_t prompt) {
    return peak_of(GradientMode::frozen, {.prompt = prompt, .responses = {block, 3, block}});
  };
  const Peak shortest = peak(prompts[0]);
  for (int64_t prompt : prompts) {
    const Peak here = peak(prompt);
    EXPECT_EQ(here.total - shortest.total, page_bytes(prompt - 1) - page_bytes(prompts[0] - 1) +
                                               position_bytes(prompt - 1) -
                                               position_bytes(prompts[0] - 1));
    EXPECT_EQ(here["keys"] + here["values"], page_bytes(prompt - 1) + page_bytes(block));
    // The prompt's twice, while room is made for those of the first branch.
    EXPECT_EQ(here["positions"], 2 * position_bytes(prompt - 1) + position_bytes(block));
    for (const auto& [label, bytes] : here.by_label) {
      if (label == "keys" || label == "values" || label == "positions") continue;
      EXPECT_EQ(bytes, shortest[label]) << label;
    }
  }
}

TEST(LedgerOfAStep, ExactAddsPageGradientsSavedStatesAndBoundaryGradients) {
  for (int64_t prompt : prompts) {
    const Lengths lengths{.prompt = prompt, .responses = {block, 3, block}};
    const Peak frozen = peak_of(GradientMode::frozen, lengths);
    const Peak exact = peak_of(GradientMode::exact, lengths);
    const int64_t blocks = (prompt - 1 + block - 1) / block;
    const int64_t page_gradients = page_bytes(prompt - 1), saved = blocks * state_bytes();
    EXPECT_EQ(exact["keys gradient"] + exact["values gradient"],
              page_gradients + page_bytes(block));
    EXPECT_EQ(exact["saved states"], saved);
    EXPECT_EQ(exact["boundary gradient"], state_bytes());
    EXPECT_EQ(exact.total - frozen.total, page_gradients + saved + state_bytes());
    for (const char* label : {"activations", "scratch", "keys", "values", "recurrent", "conv",
                              "boundary", "recurrent gradient", "conv gradient"})
      EXPECT_EQ(exact[label], frozen[label]) << label;
  }
}

// Short responses: the largest block is then the prompt's when it is walked, at whose start pages,
// their gradients and saved states are all there.
TEST(LedgerOfAStep, ExactGrowsWithThePromptByPagesTheirGradientsAndSavedStates) {
  const auto peak = [](int64_t prompt) {
    return peak_of(GradientMode::exact, {.prompt = prompt, .responses = {2, 3}});
  };
  const auto blocks = [](int64_t prompt) { return (prompt - 1 + block - 1) / block; };
  // The block that the walk starts with is a whole one.
  const int64_t few = 2 * block + 1, many = 9 * block + 1;
  EXPECT_EQ(peak(many).total - peak(few).total, 2 * (page_bytes(many - 1) - page_bytes(few - 1)) +
                                                    (blocks(many) - blocks(few)) * state_bytes() +
                                                    position_bytes(many - 1) -
                                                    position_bytes(few - 1));
}

TEST(LedgerOfAStep, FrozenHasNoGradientOfThePrompt) {
  const Peak peak = peak_of(GradientMode::frozen, {.prompt = 70, .responses = {11, 4}});
  EXPECT_FALSE(peak.by_label.contains("boundary gradient"));
  EXPECT_FALSE(peak.by_label.contains("saved states"));
  // those of the branch's own pages and of its carried states while it is replayed
  EXPECT_EQ(peak["keys gradient"] + peak["values gradient"], page_bytes(11));
  EXPECT_EQ(peak["recurrent gradient"] + peak["conv gradient"], state_bytes());
}

// Recorded activations of one block on one rank, layer by layer as the mixers record them.
int64_t activation_bytes(int64_t tokens) {
  const ModelConfig c = reference::small_config();
  const int64_t keys = c.linear_key_heads * c.linear_key_dim;
  const int64_t values = c.linear_value_heads * c.linear_value_dim;
  const int64_t stream = 4 * c.hidden;  // before mixer and MLP, and both normed
  const int64_t mlp = 2 * c.intermediate;
  // queries with gates, keys, normed queries, output, log-sum-exp
  const int64_t full = (4 * c.heads + c.kv_heads) * c.head_dim + c.heads;
  // z and output; before and after the convolution; normed queries and keys; a, b, g, beta
  const int64_t linear = 2 * values + 2 * c.conv_channels() + 2 * keys + 4 * c.linear_value_heads;
  const int64_t layers = std::ssize(c.layers);
  const int64_t a_token = layers * (stream + mlp) + layers_of(LayerKind::full_attention) * full +
                          layers_of(LayerKind::linear_attention) * linear + c.hidden;
  return tokens * a_token * element + state_bytes();
}

TEST(LedgerOfAStep, RecordedActivationsAreThoseOfOneBlock) {
  for (GradientMode mode : both_modes) {
    const auto recorded = [&](int64_t prompt, int64_t response) {
      return peak_of(mode, {.prompt = prompt, .responses = {response, 1}})["activations"];
    };
    const int64_t one = recorded(5, block);
    if (Grid::world().size() == 1) {
      EXPECT_EQ(one, activation_bytes(block));
    }
    EXPECT_EQ(recorded(5, 10 * block), one) << name_of(mode);
    EXPECT_EQ(recorded(5, 9 * block + 7), one) << name_of(mode);
    EXPECT_EQ(recorded(10 * block + 1, 10 * block), one) << name_of(mode);
  }
}

// A response of ten blocks keeps the states at the starts of all but its last, in both modes.
TEST(LedgerOfAStep, LongResponsesSaveStatesAtTheStartsOfTheirBlocks) {
  const Peak peak = peak_of(GradientMode::frozen, {.prompt = 5, .responses = {10 * block, 1}});
  EXPECT_EQ(peak["saved states"], 9 * state_bytes());
  EXPECT_EQ(peak["keys gradient"] + peak["values gradient"], page_bytes(10 * block));
}

}  // namespace
}  // namespace longstraw
