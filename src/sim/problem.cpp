#include "longstraw/sim/problem.hpp"
#include "longstraw/core/log.hpp"
#include "longstraw/core/version.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/kernels/blas_setup.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/rollout_files.hpp"
#include "longstraw/sim/weights.hpp"

#include <algorithm>

namespace longstraw {
namespace {

int64_t sequence_tokens(const Group& group) {
  int64_t longest = 0;
  for (const auto& response : group.responses)
    longest = std::max<int64_t>(longest, std::ssize(response.ids));
  return group.prompt.size() + longest;
}

int64_t longest_sequence(const Rollouts& rollouts) {
  int64_t longest = 0;
  for (const Group& group : rollouts.groups) longest = std::max(longest, sequence_tokens(group));
  return longest;
}

void check_lengths(const Problem& problem) {
  const Rope& rope = problem.model.config.rope;
  for (const Group& group : problem.rollouts.groups)
    require(sequence_tokens(group) <= rope.longest,
            "{} line {}: group {} needs {} positions, but {} "
            "vouches for {} (max_position_embeddings{}) - extend rope_parameters by yarn with a "
            "factor, or shorten the prompt",
            problem.rollouts.file, group.line, group.id, sequence_tokens(group),
            problem.checkpoint.folder() + "/config.json", rope.longest,
            rope.type == "yarn" ? ", factor x original_max_position_embeddings" : "");
}

std::string layers_text(const ModelConfig& config) {
  const auto full =
      std::count(config.layers.begin(), config.layers.end(), LayerKind::full_attention);
  return str("{} layers ({} linear_attention, {} full_attention)", config.layers.size(),
             std::ssize(config.layers) - full, full);
}

std::string gradient_text(const Problem& problem) {
  const StepperSettings& s = problem.settings.stepper;
  if (s.mode == GradientMode::frozen) return "frozen";
  const int64_t every = s.prompt_checkpoint_every > 0
                            ? s.prompt_checkpoint_every
                            : prompt_checkpoints_by_size(problem.model.config, s.block_tokens);
  return str("exact, prompt states saved every {} block(s)", every);
}

}  // namespace

Problem open_problem(const Settings& settings, const Grid& grid) {
  Checkpoint checkpoint = Checkpoint::open(settings.checkpoint, grid);
  std::optional<Model> model;
  agree(grid, [&] {
    model.emplace(open_model(checkpoint));
    if (grid.rank() == 0) check_regular(settings.rollouts.file);
  });
  Problem problem{
      .settings = settings,
      .checkpoint = std::move(checkpoint),
      .model = std::move(*model),
      .rollouts = open_rollouts(settings.rollouts.file, settings.rollouts.on_bad_sample, grid)};
  agree(grid, [&] {
    check_rollouts(problem.rollouts, settings.objective, problem.model.config.vocab, grid);
    check_lengths(problem);
    check_steps(settings, std::ssize(problem.rollouts.groups));
  });
  return problem;
}

void log_header(const Problem& problem, const Grid& grid) {
  const ModelConfig& config = problem.model.config;
  const Settings& s = problem.settings;
  const int64_t parameters = problem.model.parameters.size();
  const double bytes = static_cast<double>(parameters * size_of(s.precision));
  const BlasFacts blas = blas_facts();
  int64_t responses = 0;
  for (const Group& group : problem.rollouts.groups) responses += std::ssize(group.responses);

  log(Level::info, "LongStraw {}  {} rank(s) on {} node(s)", version_text, grid.size(),
      grid.nodes());
  log(Level::info, "  precision  {}, gradient {}", name_of(s.precision), gradient_text(problem));
  log(Level::info, "  blas       {}, kernels {}, {} thread(s) a rank", blas.config, blas.kernel,
      blas.threads);
  log(Level::info, "  model      {}  {}: {}, {:.4g} M parameters, vocabulary {}{}",
      problem.checkpoint.folder(), config.model_type, layers_text(config),
      static_cast<double>(parameters) / 1e6, config.vocab,
      config.tied_embeddings ? ", tied embeddings" : "");
  log(Level::info,
      "  rope       {}, theta {:g}, factor {:g}, scale {:.6g}, {} dimensions, good for "
      "{} tokens (longest here {})",
      config.rope.type, config.rope.theta, config.rope.factor, config.rope.scale,
      2 * config.rope.inv_freq.size(), config.rope.longest, longest_sequence(problem.rollouts));
  log(Level::info, "  rollouts   {}  {} group(s), {} response(s)", problem.rollouts.file,
      problem.rollouts.groups.size(), responses);
  log(Level::info, "  memory     {} weights, {} gradient, {} moments a rank", bytes_text(bytes),
      bytes_text(bytes), bytes_text(2 * bytes / grid.size()));
  if (const auto ignored = ignored_tensors(problem.checkpoint, problem.model); !ignored.empty())
    log(Level::info, "  not used   {} tensor(s) of the checkpoint, such as {}: kept as they are",
        ignored.size(), ignored.front());
  if (problem.rollouts.dropped_responses > 0)
    log(Level::warning, "{} response(s) and {} group(s) were dropped (on_bad_sample = drop)",
        problem.rollouts.dropped_responses, problem.rollouts.dropped_groups);
  if (!blas.slow.empty()) log(Level::warning, blas.slow);
}

}  // namespace longstraw
