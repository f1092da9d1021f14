#include "longstraw/sim/first_step.hpp"

#include "longstraw/kernels/adamw.hpp"
#include "longstraw/kernels/vectors.hpp"
#include "longstraw/sim/weights.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace longstraw {
namespace {

// Sequences of run.seed from here on are directions; those below are epochs' shuffles.
constexpr uint64_t first_direction = uint64_t{1} << 32;

// How often a difference is taken closer by: because a token passes a clip between its two sides,
// or because of curvature, which a wrong gradient outlasts.
constexpr int most_shrunk = 3;

// Rounding of the loss over its change, which along a random direction is some |g| / sqrt(n) times
// the way. Seen on the golden cases and the shipped input: up to 1e-8 and 5e-3.
Bound difference_bound(DType type, double value) {
  return type == DType::float64
             ? Bound{value, 1e-6, "rounding of the float64 loss over its change"}
             : Bound{value, 0.05, "rounding of the float32 loss over its change"};
}

StepperSettings for_gradient(const Problem& problem, GradientMode mode) {
  StepperSettings settings = problem.settings.stepper;
  settings.mode = mode;
  return settings;
}

// Log-probabilities are kept, so that those of the first loss, at the checkpoint's weights, are the
// old ones of the later ones.
StepperSettings for_loss(const Problem& problem) {
  StepperSettings settings = for_gradient(problem, GradientMode::frozen);
  settings.values_only = settings.keep_logprobs = true;
  return settings;
}

}  // namespace

std::vector<const Group*> first_groups(const Problem& problem) {
  std::vector<const Group*> groups;
  const auto steps = steps_of(problem.settings, std::ssize(problem.rollouts.groups));
  for (int64_t index : steps.front()) groups.push_back(&problem.rollouts.groups[index]);
  return groups;
}

FirstStep::FirstStep(const Problem& problem, DType type, const Grid& grid, Ledger& ledger,
                     Progress& progress)
    : problem_(problem),
      parameters_(ledger, type, problem.model.parameters),
      context_{grid, ledger, stream_, parameters_},
      groups_(first_groups(problem)),
      progress_(progress) {
  load_weights(problem.checkpoint, parameters_, grid);
}

// How far a difference goes: at most to this part of the weights' norm, and this change of the
// loss. Nearer, and the loss's rounding shows; farther, and its curvature and clips do.
FirstStep::Reach FirstStep::reach(DType type) {
  return type == DType::float64 ? Reach{1e-6, 1e-6} : Reach{5e-3, 1e-3};
}

StepSummary FirstStep::run(Stepper& stepper, const std::string& what) {
  stepper.begin_step(groups_);
  for_each_tick(0, stepper.plan(groups_), [&](const Tick& tick) {
    stepper.perform(tick);
    progress_.done(tick.kind, stepper.tokens(tick),
                   str("{} in {}", what, name_of(context_.type())));
  });
  return stepper.summary();
}

ReducedGradient FirstStep::gradient(GradientMode mode) {
  Stepper stepper(context_, problem_.model, problem_.settings.objective,
                  for_gradient(problem_, mode));
  summary_ = run(stepper, str("{} gradient", name_of(mode)));
  ReducedGradient reduced(context_);
  const std::string response = stepper.nonfinite_response();
  if (!std::isfinite(reduced.norm(context_.grid, stream_)))
    throw Error(str("verify: the {} gradient is not finite, first seen at response {}",
                    name_of(mode), response),
                1, true);
  clear(parameters_.gradients());
  return reduced;
}

FirstStep::Sides FirstStep::sides_of(Stepper& stepper, const ReducedGradient& gradient,
                                     const Tensor& base, const Tensor& direction, double factor) {
  const Tensor& weights = parameters_.weights();
  const Range mine = gradient.mine();
  // What the gradient says of the change that the weights really make, after their rounding.
  double by_gradient = 0;
  StepSummary loss[2];
  for (const int side : {0, 1}) {
    const double sign = side == 0 ? 1 : -1;
    step_along(stream_, weights, base, direction, sign * factor);
    by_gradient += sign * context_.grid.sum(product_with_difference(
                              stream_, gradient.values(), weights.rows(mine.begin, mine.end),
                              base.rows(mine.begin, mine.end)));
    loss[side] = run(stepper, "loss");
  }
  copy(weights, base);
  const auto clips = [](const StepSummary& s) {
    return std::array{s.clip_fraction_low, s.clip_fraction_high, s.dual_clip_fraction};
  };
  return {.by_gradient = by_gradient,
          .by_loss = loss[0].loss - loss[1].loss,
          .smooth = clips(loss[0]) == clips(loss[1])};
}

DifferenceCheck FirstStep::along(Stepper& stepper, const ReducedGradient& gradient,
                                 const Tensor& base, const Tensor& direction) {
  const DType type = context_.type();
  const Range mine = gradient.mine();
  const double length = std::sqrt(sum_of_squares(stream_, direction));
  const double typical =
      gradient.norm(context_.grid, stream_) / std::sqrt(static_cast<double>(base.size()));
  const double slope =
      context_.grid.sum(
          products(stream_, gradient.values(), direction.rows(mine.begin, mine.end)).ab) /
      length;
  const Reach far = reach(type);
  double h = std::min(far.weights * std::sqrt(sum_of_squares(stream_, base)),
                      far.loss / std::max(std::abs(slope), typical));
  Sides sides;
  Bound error;
  for (int shrunk = 0; shrunk <= most_shrunk; ++shrunk) {
    if (shrunk > 0) h /= 4;
    sides = sides_of(stepper, gradient, base, direction, h / length);
    error = difference_bound(type, std::abs(sides.by_loss - sides.by_gradient) /
                                       std::max(std::abs(sides.by_gradient), 2 * h * typical));
    if (sides.smooth && error.held()) break;
  }
  return {.precision = type,
          .direction = {},
          .h = h,
          .by_gradient = sides.by_gradient / (2 * h),
          .by_loss = sides.by_loss / (2 * h),
          .error = error,
          .smooth = sides.smooth};
}

std::vector<DifferenceCheck> FirstStep::differences(const ReducedGradient& gradient,
                                                    int64_t directions) {
  std::vector<DifferenceCheck> checks;
  if (directions == 0) return checks;
  const int64_t size = parameters_.list().size();
  const Field base(context_.ledger, "verify", context_.type(), {size});
  const Field direction(context_.ledger, "verify", context_.type(), {size});
  copy(base, parameters_.weights());
  Stepper stepper(context_, problem_.model, problem_.settings.objective, for_loss(problem_));
  run(stepper, "loss");
  for (int64_t i = 0; i <= directions; ++i) {
    if (i == 0)
      gradient.gather(context_.grid, direction, {0, size});
    else
      fill_normal(stream_, direction, static_cast<uint64_t>(problem_.settings.seed),
                  first_direction + static_cast<uint64_t>(i));
    checks.push_back(along(stepper, gradient, base, direction));
    checks.back().direction = i == 0 ? "the gradient's" : str("random {}", i);
  }
  return checks;
}

double verify_work(const Problem& problem, int64_t directions, const Grid& grid) {
  Ledger ledger;
  Stream stream;
  const Parameters none(ledger, DType::float32, {});
  const auto groups = first_groups(problem);
  const auto work = [&](const StepperSettings& settings) {
    const Stepper stepper({grid, ledger, stream, none}, problem.model, problem.settings.objective,
                          settings);
    return Progress::work(groups, stepper.plan(groups));
  };
  const double losses = directions == 0 ? 0 : static_cast<double>(2 * directions + 3);
  const double exact =
      work(for_gradient(problem, GradientMode::exact)) + losses * work(for_loss(problem));
  const int precisions = problem.settings.precision == DType::float32 ? 2 : 1;
  return precisions * exact + work(for_gradient(problem, GradientMode::frozen));
}

}  // namespace longstraw
