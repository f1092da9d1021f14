#include "longstraw/sim/verify.hpp"

#include "longstraw/core/log.hpp"
#include "longstraw/io/gradients.hpp"
#include "longstraw/kernels/adamw.hpp"
#include "longstraw/kernels/vectors.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/weights.hpp"

#include <algorithm>
#include <cmath>

namespace longstraw {
namespace {

// Sequences of run.seed from here on are directions; those below are epochs' shuffles.
constexpr uint64_t first_direction = uint64_t{1} << 32;

// How far a difference goes: at most to this part of the weights' norm, and this change of the
// loss. Nearer, and the loss's rounding shows; farther, and its curvature and clips do.
struct Reach {
  double weights;
  double loss;
};
constexpr Reach reach_of(DType type) {
  return type == DType::float64 ? Reach{1e-5, 1e-6} : Reach{5e-3, 1e-3};
}

// Rounding of the loss over its change, which along a random direction is reach times some
// |g| |w| / sqrt(n): 1e-15 over 1e-8 and 1e-7 over 1e-5 on models seen.
Bound difference_bound(DType type, double value) {
  return type == DType::float64
             ? Bound{value, 1e-6, "rounding of the float64 loss over its change"}
             : Bound{value, 0.05, "rounding of the float32 loss over its change"};
}

Bound rounding_bound(DType type, double value) {
  return type == DType::float64 ? Bound{value, 1e-10, "rounding of float64 sums"}
                                : Bound{value, 1e-3, "rounding of float32 sums"};
}

std::vector<NamedShape> shapes_of(const ParameterList& list) {
  std::vector<NamedShape> shapes;
  for (const Parameter& p : list.all()) shapes.push_back({p.name, p.shape});
  return shapes;
}

std::vector<const Group*> first_groups(const Problem& problem) {
  std::vector<const Group*> groups;
  const auto steps = steps_of(problem.settings, std::ssize(problem.rollouts.groups));
  for (int64_t index : steps.front()) groups.push_back(&problem.rollouts.groups[index]);
  return groups;
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

// The deck's first step in one precision: its gradients at the checkpoint's weights, and its loss
// there and near.
class FirstStep {
 public:
  FirstStep(const Problem& problem, DType type, const Grid& grid, Ledger& ledger,
            Progress& progress)
      : problem_(problem),
        parameters_(ledger, type, problem.model.parameters),
        context_{grid, ledger, stream_, parameters_},
        groups_(first_groups(problem)),
        progress_(progress) {
    load_weights(problem.checkpoint, parameters_, grid);
  }

  ReducedGradient gradient(GradientMode mode);
  std::vector<DifferenceCheck> differences(const ReducedGradient& exact, int64_t directions);
  const StepSummary& summary() const { return summary_; }

 private:
  StepSummary run(Stepper& stepper, const std::string& what);
  DifferenceCheck along(Stepper& stepper, const ReducedGradient& exact, const Tensor& base,
                        const Tensor& direction);

  const Problem& problem_;
  Stream stream_;
  Parameters parameters_;
  Context context_;
  std::vector<const Group*> groups_;
  Progress& progress_;
  StepSummary summary_;
};

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

DifferenceCheck FirstStep::along(Stepper& stepper, const ReducedGradient& exact, const Tensor& base,
                                 const Tensor& direction) {
  const DType type = context_.type();
  const Tensor& weights = parameters_.weights();
  const auto mine = [&](const Tensor& all) {
    return all.rows(exact.mine().begin, exact.mine().end);
  };
  const auto summed = [&](double value) { return context_.grid.sum(value); };
  const double length = std::sqrt(sum_of_squares(stream_, direction));
  const double typical =
      exact.norm(context_.grid, stream_) / std::sqrt(static_cast<double>(weights.size()));
  const double slope = summed(products(stream_, exact.values(), mine(direction)).ab) / length;
  const Reach reach = reach_of(type);
  const double h = std::min(reach.weights * std::sqrt(sum_of_squares(stream_, base)),
                            reach.loss / std::max(std::abs(slope), typical));
  // What the gradient says of the change that the weights really make, after their rounding.
  double expected = 0;
  StepSummary sides[2];
  for (const int side : {0, 1}) {
    const double sign = side == 0 ? 1 : -1;
    step_along(stream_, weights, base, direction, sign * h / length);
    expected +=
        sign * summed(product_with_difference(stream_, exact.values(), mine(weights), mine(base)));
    sides[side] = run(stepper, "loss");
  }
  copy(weights, base);
  const double measured = sides[0].loss - sides[1].loss;
  const double error =
      std::abs(measured - expected) / std::max(std::abs(expected), 2 * h * typical);
  const auto clips = [](const StepSummary& s) {
    return std::array{s.clip_fraction_low, s.clip_fraction_high, s.dual_clip_fraction};
  };
  return {.precision = type,
          .direction = {},
          .h = h,
          .by_gradient = expected / (2 * h),
          .by_loss = measured / (2 * h),
          .error = difference_bound(type, error),
          .smooth = clips(sides[0]) == clips(sides[1])};
}

std::vector<DifferenceCheck> FirstStep::differences(const ReducedGradient& exact,
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
      exact.gather(context_.grid, direction, {0, size});
    else
      fill_normal(stream_, direction, static_cast<uint64_t>(problem_.settings.seed),
                  first_direction + static_cast<uint64_t>(i));
    checks.push_back(along(stepper, exact, base, direction));
    checks.back().direction = i == 0 ? "the gradient's" : str("random {}", i);
  }
  return checks;
}

RoundingCheck rounding_check(std::string of, DType type,
                             const std::vector<NamedDistance>& parameters) {
  const auto largest =
      std::max_element(parameters.begin(), parameters.end(), [](const auto& a, const auto& b) {
        return a.distance.relative_l2() < b.distance.relative_l2();
      });
  return {.of = std::move(of),
          .all = total(parameters),
          .largest = *largest,
          .error = rounding_bound(type, largest->distance.relative_l2())};
}

// `gradient` (exact or frozen, as the file's) against that of another run.
RoundingCheck compare_with_file(const StoredGradient& stored, const ReducedGradient& gradient,
                                const Problem& problem, const Grid& grid, Ledger& ledger) {
  const ParameterList& list = problem.model.parameters;
  const DType type = gradient.values().type();
  Stream stream;
  std::map<std::string, int64_t> offsets;
  std::map<std::string, Distance> sums;
  for (const Parameter& p : list.all()) offsets[p.name] = p.offset;
  read_gradients(stored.file.path, shapes_of(list), grid, ledger,
                 [&](const std::string& name, Range elements, const Tensor& values) {
                   const Field ours(ledger, "verify", type, {elements.size()});
                   const int64_t at = offsets.at(name);
                   gradient.gather(grid, ours, {at + elements.begin, at + elements.end});
                   const Products s = products(stream, ours, values);
                   sums[name] += {s.bb, s.aa, s.ab, s.difference};
                 });
  std::vector<NamedDistance> parameters;
  for (const Parameter& p : list.all()) parameters.push_back({p.name, sums[p.name]});
  const bool single = type == DType::float32 || stored.type == DType::float32;
  return rounding_check(str("{} gradient against {}", stored.file.mode, stored.file.path),
                        single ? DType::float32 : DType::float64, parameters);
}

double work_of(const Problem& problem, int64_t directions, const Grid& grid) {
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

}  // namespace

bool VerifyReport::held() const {
  return std::all_of(differences.begin(), differences.end(),
                     [](const auto& check) { return !check.smooth || check.error.held(); }) &&
         std::all_of(rounding.begin(), rounding.end(),
                     [](const auto& check) { return check.error.held(); });
}

void check_verify(const Problem& problem, const VerifyOptions& options, const Grid& grid) {
  agree(grid, [&] {
    Ledger ledger;
    Stream stream;
    const Parameters none(ledger, DType::float32, {});
    const Stepper stepper({grid, ledger, stream, none}, problem.model, problem.settings.objective,
                          problem.settings.stepper);
    require(has_signal(stepper.plan(first_groups(problem))),
            "verify: no response of the first step has an advantage (all rewards of each group are "
            "equal), so its gradient is zero - take another step by rollouts.shuffle=true "
            "run.seed=N, or more groups a step");
  });
  if (options.against.empty()) return;
  const auto stored = open_gradients(options.against, shapes_of(problem.model.parameters), grid);
  agree(grid, [&] {
    require(stored.file.step == 0, "verify: {} is the gradient of step {}, not of the first",
            options.against, stored.file.step + 1);
  });
}

VerifyReport verify(const Problem& problem, const VerifyOptions& options, const Grid& grid) {
  const Timer timer;
  Ledger ledger;
  Stream stream;
  Progress progress(work_of(problem, options.directions, grid), on_terminal() && grid.rank() == 0);
  const DType type = problem.settings.precision;
  VerifyReport report{
      .ranks = grid.size(), .precision = type, .groups = std::ssize(first_groups(problem))};
  ReducedGradient exact;
  {
    FirstStep step(problem, type, grid, ledger, progress);
    exact = step.gradient(GradientMode::exact);
    report.summary = step.summary();
    {
      const ReducedGradient frozen = step.gradient(GradientMode::frozen);
      report.frozen = distances(grid, stream, problem.model.parameters, frozen, exact);
      if (!options.against.empty()) {
        const auto stored =
            open_gradients(options.against, shapes_of(problem.model.parameters), grid);
        const bool is_exact = stored.file.mode == name_of(GradientMode::exact);
        report.rounding.push_back(
            compare_with_file(stored, is_exact ? exact : frozen, problem, grid, ledger));
      }
    }
    report.differences = step.differences(exact, options.directions);
  }
  if (type == DType::float32) {
    FirstStep step(problem, DType::float64, grid, ledger, progress);
    const ReducedGradient exact64 = step.gradient(GradientMode::exact);
    report.rounding.push_back(
        rounding_check("exact gradient in float32 against float64", DType::float32,
                       distances(grid, stream, problem.model.parameters, exact, exact64)));
    const auto more = step.differences(exact64, options.directions);
    report.differences.insert(report.differences.end(), more.begin(), more.end());
  }
  progress.clear();
  report.bytes_peak = peak_bytes(ledger, grid);
  report.seconds = timer.seconds();
  return report;
}

}  // namespace longstraw
