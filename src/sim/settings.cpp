#include "longstraw/sim/settings.hpp"

#include "longstraw/core/random.hpp"

#include <limits>
#include <numeric>

namespace longstraw {
namespace {

// Groups of all steps together: the run lists them, in 1 GiB at most.
constexpr int64_t most_group_uses = int64_t{1} << 24;

std::vector<int64_t> epoch_order(const Settings& settings, int64_t epoch, int64_t groups) {
  std::vector<int64_t> order(groups);
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!settings.rollouts.shuffle) return order;
  for (int64_t i = groups - 1; i > 0; --i)
    std::swap(order[i], order[random_bits(settings.seed, epoch, i) % (i + 1)]);
  return order;
}

}  // namespace

Settings read_settings(Deck& deck) {
  constexpr int64_t most = int64_t{1} << 40;
  Settings s;
  s.checkpoint = deck.path("model.checkpoint");
  s.precision = deck.one_of("model.precision", "float32", {"float32", "float64"}) == "float64"
                    ? DType::float64
                    : DType::float32;
  s.rollouts = read_rollout_settings(deck);
  s.stepper.mode = deck.one_of("gradient.mode", "exact", {"exact", "frozen"}) == "exact"
                       ? GradientMode::exact
                       : GradientMode::frozen;
  s.stepper.prompt_checkpoint_every = deck.get_in<int64_t>(
      "gradient.prompt_checkpoint_every", s.stepper.prompt_checkpoint_every, 0, int64_t{1} << 30);
  s.objective = read_objective(deck);
  s.optimizer = read_optimizer(deck);
  s.stepper.block_tokens =
      deck.get_in<int64_t>("parallel.block_tokens", s.stepper.block_tokens, 1, int64_t{1} << 30);
  s.stepper.page_tokens =
      deck.get_in<int64_t>("parallel.page_tokens", s.stepper.page_tokens, 1, int64_t{1} << 30);
  deck.one_of("parallel.weights", "replicated", {"replicated"});
  s.steps = deck.get_in<int64_t>("run.steps", s.steps, 0, most);
  s.seed = deck.get_in<int64_t>("run.seed", s.seed, 0, most);
  s.dump.every_ticks = deck.get_in<int64_t>("dump.every_ticks", s.dump.every_ticks, 0, most);
  s.dump.every_seconds = deck.get_in("dump.every_seconds", s.dump.every_seconds, 0.0, 1e9);
  s.dump.at_exit = deck.get("dump.at_exit", s.dump.at_exit);
  s.dump.keep = deck.get_in<int64_t>("dump.keep", s.dump.keep, 1, most);
  s.watchdog_seconds = deck.get_in<double>("run.watchdog_seconds", s.watchdog_seconds, 0, 1e9);
  s.write_gradients = deck.get("output.gradients", s.write_gradients);
  s.stepper.keep_logprobs =
      s.rollouts.epochs > 1 && s.objective.old_logprobs == OldLogprobs::computed;
  return s;
}

int64_t steps_in_epochs(const RolloutSettings& rollouts, int64_t groups) {
  const int64_t of_one =
      groups / rollouts.groups_per_step + (groups % rollouts.groups_per_step > 0);
  int64_t steps = 0;
  if (__builtin_mul_overflow(of_one, rollouts.epochs, &steps))
    return std::numeric_limits<int64_t>::max();
  return steps;
}

void check_steps(const Settings& s, int64_t groups) {
  const RolloutSettings& r = s.rollouts;
  require(r.groups_per_step <= groups,
          str("rollouts.groups_per_step = {}, but {} has {} group(s)", r.groups_per_step, r.file,
              groups),
          2);
  const int64_t most = steps_in_epochs(r, groups);
  const std::string epochs =
      str("{} epoch(s) of {} group(s), {} a step,", r.epochs, groups, r.groups_per_step);
  require(s.steps <= most,
          str("run.steps = {}, but {} have {} - raise rollouts.epochs, or leave run.steps out",
              s.steps, epochs, most),
          2);
  const int64_t steps = s.steps > 0 ? s.steps : most;
  require(steps <= most_group_uses / r.groups_per_step,
          str("{} steps with {} group(s) each are more than one run can list - lower {}", steps,
              r.groups_per_step, s.steps > 0 ? "run.steps" : "rollouts.epochs, or set run.steps"),
          2);
}

std::vector<std::vector<int64_t>> steps_of(const Settings& settings, int64_t groups) {
  std::vector<std::vector<int64_t>> steps;
  for (int64_t epoch = 0; epoch < settings.rollouts.epochs; ++epoch) {
    const auto order = epoch_order(settings, epoch, groups);
    for (int64_t i = 0; i < groups; ++i) {
      if (i % settings.rollouts.groups_per_step == 0) {
        if (settings.steps > 0 && std::ssize(steps) == settings.steps) return steps;
        steps.emplace_back();
      }
      steps.back().push_back(order[i]);
    }
  }
  return steps;
}

}  // namespace longstraw
