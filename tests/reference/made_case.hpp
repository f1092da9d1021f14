// Models and rollouts made from a seed: any sizes, any lengths.
#pragma once

#include "longstraw/core/random.hpp"
#include "reference/step_run.hpp"

#include <cmath>
#include <numbers>

namespace longstraw::reference {

/// Small, but with sizes that divide each other as little as the family allows.
inline ModelConfig small_config() {
  ModelConfig c;
  c.model_type = "qwen3_5_text";
  c.vocab = 61;
  c.hidden = 20;
  c.intermediate = 28;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 12;
  c.linear_key_heads = 2;
  c.linear_value_heads = 4;
  c.linear_key_dim = 6;
  c.linear_value_dim = 10;
  c.conv_taps = 4;
  c.norm_eps = 1e-6;
  c.rope = {.type = "default", .theta = 1e4, .longest = 1 << 20, .inv_freq = {1.0, 0.02}};
  c.layers = {LayerKind::linear_attention, LayerKind::full_attention, LayerKind::linear_attention};
  return c;
}

inline double normal(uint64_t seed, uint64_t sequence, uint64_t index) {
  return std::sqrt(-2 * std::log(random_unit(seed, sequence, 2 * index))) *
         std::cos(2 * std::numbers::pi * random_unit(seed, sequence, 2 * index + 1));
}

/// A value for element `index` of a parameter, such that activations keep their size and decays
/// range from slow to quick.
inline double made_weight(const Parameter& p, uint64_t seed, int64_t index) {
  const double x = normal(seed, 1, p.offset + index);
  const auto ends = [&](const char* suffix) { return p.name.ends_with(suffix); };
  if (ends("linear_attn.norm.weight")) return 1 + 0.1 * x;
  if (ends("A_log")) return -2 + x;
  if (ends("dt_bias")) return -1 + 0.5 * x;
  if (ends("conv1d.weight")) return 0.6 * x;
  if (ends("norm.weight") || ends("layernorm.weight")) return 0.1 * x;
  if (ends("embed_tokens.weight")) return 0.7 * x;
  return 1.2 * x / std::sqrt(static_cast<double>(p.size / p.shape[0]));
}

inline void make_weights(const Parameters& parameters, uint64_t seed) {
  dispatch(parameters.weights().type(), [&]<class T>(T) {
    T* to = parameters.weights().template data<T>();
    for (const Parameter& p : parameters.list().all())
      for (int64_t i = 0; i < p.size; ++i) to[p.offset + i] = made_weight(p, seed, i);
  });
}

struct Lengths {
  int64_t prompt = 1;
  std::vector<int64_t> responses;
};

/// Groups with these lengths: ids below `vocab`, rewards that differ within a group, given
/// log-probabilities and reference ones near what a random model says.
inline std::vector<Group> made_groups(const std::vector<Lengths>& lengths, int64_t vocab,
                                      uint64_t seed) {
  std::vector<Group> groups;
  uint64_t counter = 0;
  const auto id = [&] { return static_cast<int32_t>(random_bits(seed, 2, counter++) % vocab); };
  for (const Lengths& length : lengths) {
    Group& group = groups.emplace_back();
    group.id = str("g{}", groups.size() - 1);
    std::vector<int32_t> prompt;
    for (int64_t i = 0; i < length.prompt; ++i) prompt.push_back(id());
    group.prompt = std::move(prompt);
    for (int64_t n : length.responses) {
      Response& r = group.responses.emplace_back();
      r.id = str("{}r{}", group.id, group.responses.size() - 1);
      r.reward = static_cast<double>(group.responses.size() % 3);
      for (int64_t i = 0; i < n; ++i) {
        r.ids.push_back(id());
        const double likely = -std::log(static_cast<double>(vocab));
        r.logprobs.push_back(likely + 0.1 * normal(seed, 3, counter));
        r.ref_logprobs.push_back(likely + 0.1 * normal(seed, 4, counter));
      }
    }
  }
  return groups;
}

inline std::vector<const Group*> pointers(const std::vector<Group>& groups) {
  std::vector<const Group*> all;
  for (const Group& group : groups) all.push_back(&group);
  return all;
}

/// A step over `groups` of the model made from `config` and `seed`.
struct MadeRun : StepRun {
  MadeRun(const Grid& on, const ModelConfig& config, const std::vector<Group>& made,
          const ObjectiveSettings& by, DType type, const StepperSettings& settings,
          uint64_t seed = 1)
      : StepRun(on, Model(config, "model."), pointers(made), by, type, settings) {
    make_weights(parameters, seed);
  }
};

}  // namespace longstraw::reference
