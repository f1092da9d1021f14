#include "bench/bench.hpp"
#include "bench/measure.hpp"
#include "longstraw/core/log.hpp"
#include "longstraw/sim/optimizer.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/stepper.hpp"

#include <cmath>

namespace longstraw::bench {
namespace {

// 31 million parameters, 8 layers of which 2 attend.
constexpr const char* bench_config = R"({
  "model_type": "qwen3_5_text", "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1536,
  "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
  "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64,
  "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
  "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
  "max_position_embeddings": 1048576, "tie_word_embeddings": true})";

class Numbers {
 public:
  /// About normal, of unit variance.
  double normal() { return 2 * (uniform() + uniform() + uniform()) - 3; }
  double uniform() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state_ >> 11) / static_cast<double>(uint64_t{1} << 53);
  }
  int32_t below(int64_t most) {
    return static_cast<int32_t>(uniform() * static_cast<double>(most));
  }

 private:
  uint64_t state_ = 12345;
};

void fill_weights(const Parameters& parameters) {
  Numbers numbers;
  for (const Parameter& p : parameters.list().all()) {
    float* const w = parameters.weights().data<float>() + p.offset;
    const double wide = static_cast<double>(p.size / p.shape[0]);
    for (int64_t i = 0; i < p.size; ++i) {
      if (p.name.ends_with("A_log")) {
        w[i] = static_cast<float>(std::log(0.02 + 0.25 * static_cast<double>(i)));
      } else if (p.name.ends_with("dt_bias")) {
        w[i] = -1;
      } else if (p.name.ends_with("norm.weight")) {
        w[i] = static_cast<float>(0.05 * numbers.normal() +
                                  (p.name.ends_with("linear_attn.norm.weight") ? 1 : 0));
      } else {
        const double scale = p.name.ends_with("conv1d.weight")         ? 0.5
                             : p.name.ends_with("embed_tokens.weight") ? 0.05
                                                                       : 1 / std::sqrt(wide);
        w[i] = static_cast<float>(scale * numbers.normal());
      }
    }
  }
}

Group make_group(int64_t prompt, const StepSizes& sizes, int64_t vocab) {
  Numbers numbers;
  Group group{.id = "bench", .prompt = {}, .responses = {}, .line = 1};
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < prompt; ++i) ids.push_back(numbers.below(vocab));
  group.prompt = std::move(ids);
  for (int64_t r = 0; r < sizes.members; ++r) {
    Response response;
    response.id = str("r{}", r);
    response.reward = static_cast<double>(r % 3);
    for (int64_t i = 0; i < sizes.response; ++i) response.ids.push_back(numbers.below(vocab));
    group.responses.push_back(std::move(response));
  }
  return group;
}

class Steps {
 public:
  Steps(const Grid& grid, const StepSizes& sizes)
      : grid_(grid),
        sizes_(sizes),
        model_(parse_config(bench_config, "bench model"), "model."),
        parameters_(ledger_, DType::float32, model_.parameters),
        optimizer_(ledger_, grid, parameters_, {}) {
    fill_weights(parameters_);
  }

  void prompt(int64_t tokens);

 private:
  Measurement capture(const Group& group, GradientMode mode);
  Measurement step(const Group& group, GradientMode mode);
  Stepper make_stepper(GradientMode mode) {
    return Stepper({grid_, ledger_, stream_, parameters_}, model_, {},
                   {.mode = mode, .block_tokens = sizes_.block_tokens});
  }

  const Grid& grid_;
  StepSizes sizes_;
  Ledger ledger_;
  Stream stream_;
  Model model_;
  Parameters parameters_;
  Optimizer optimizer_;
};

Measurement Steps::capture(const Group& group, GradientMode mode) {
  Stepper stepper = make_stepper(mode);
  const std::vector<const Group*> groups = {&group};
  const StepPlan plan = stepper.plan(groups);
  stepper.begin_step(groups);
  return measure(grid_, ledger_, stream_, 3, [&] {
    for (Tick tick = first_tick(0, plan); tick.kind == TickKind::capture_block;
         tick = next_tick(tick, plan))
      stepper.capture_block(tick);
  });
}

Measurement Steps::step(const Group& group, GradientMode mode) {
  Stepper stepper = make_stepper(mode);
  const std::vector<const Group*> groups = {&group};
  const StepPlan plan = stepper.plan(groups);
  return measure(grid_, ledger_, stream_, 1, [&] {
    stepper.begin_step(groups);
    for (Tick tick = first_tick(0, plan); tick.kind != TickKind::update;
         tick = next_tick(tick, plan))
      stepper.perform(tick);
    const ReducedGradient gradient({grid_, ledger_, stream_, parameters_});
    optimizer_.update(stream_, parameters_, gradient, gradient.norm(grid_, stream_), 1e-6);
    clear(parameters_.gradients());
  });
}

void Steps::prompt(int64_t tokens) {
  const Group group = make_group(tokens, sizes_, model_.config.vocab);
  print_heading(
      str("prompt of {} tokens, {} responses of {}", tokens, sizes_.members, sizes_.response));
  const Measurement captured = capture(group, GradientMode::frozen);
  print_line("capture", captured);
  ledger_.reset_peaks();
  const Measurement frozen = step(group, GradientMode::frozen);
  print_line("frozen group step", frozen);
  log(Level::info, "{:<44}{:>10}", "  peak of rank 0",
      bytes_text(static_cast<double>(ledger_.total().peak)));
  if (!sizes_.exact) return;
  ledger_.reset_peaks();
  const Measurement exact = step(group, GradientMode::exact);
  print_line("exact group step", exact);
  log(Level::info, "{:<44}{:>10}", "  peak of rank 0",
      bytes_text(static_cast<double>(ledger_.total().peak)));
  log(Level::info, "{:<44}{:>10.2f}", "  (exact - frozen) / capture, in seconds",
      (exact.seconds - frozen.seconds) / captured.seconds);
}

}  // namespace

void bench_steps(const Grid& grid, const StepSizes& sizes) {
  Steps steps(grid, sizes);
  for (const int64_t tokens : sizes.prompts) steps.prompt(tokens);
}

}  // namespace longstraw::bench
