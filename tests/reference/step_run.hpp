// One step by the program's own parts - model, stepper, reduced gradient - with everything at hand
// for tests to look at.
#pragma once

#include "longstraw/sim/reduced_gradient.hpp"
#include "longstraw/sim/stepper.hpp"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace longstraw::reference {

struct StepRun {
  /// The weights are left to the caller. `groups` must outlive the run.
  StepRun(const Grid& grid_, Model model_, std::vector<const Group*> groups_,
          const ObjectiveSettings& objective_, DType type, const StepperSettings& settings)
      : grid(grid_),
        model(std::move(model_)),
        parameters(ledger, type, model.parameters),
        context{grid, ledger, stream, parameters},
        objective(objective_),
        stepper(context, model, objective, settings),
        groups(std::move(groups_)),
        plan(stepper.plan(groups)) {
    stepper.begin_step(groups);
  }

  /// All ticks of the step but the update; `before` sees each one first.
  void run_ticks(const std::function<void(const Tick&)>& before = [](const Tick&) {}) {
    for_each_tick(0, plan, [&](const Tick& tick) {
      before(tick);
      stepper.perform(tick);
    });
  }

  /// Runs the step and returns its whole gradient, flat, in double.
  std::vector<double> gradient() {
    run_ticks();
    return whole(ReducedGradient(context));
  }

  /// The whole of a reduced gradient, flat, in double.
  std::vector<double> whole(const ReducedGradient& reduced) {
    const Field all(ledger, "test", parameters.weights().type(), {model.parameters.size()});
    reduced.gather(grid, all, {0, model.parameters.size()});
    return values(all);
  }

  static std::vector<double> values(const Tensor& tensor) {
    std::vector<double> to(tensor.size());
    dispatch(tensor.type(), [&]<class T>(T) {
      for (int64_t i = 0; i < tensor.size(); ++i) to[i] = tensor.data<T>()[i];
    });
    return to;
  }

  int64_t peak(const std::string& label) const {
    const auto found = ledger.entries().find(label);
    return found == ledger.entries().end() ? 0 : found->second.peak;
  }

  Grid grid;
  Ledger ledger;
  Stream stream;
  Model model;
  Parameters parameters;
  Context context;
  ObjectiveSettings objective;
  Stepper stepper;
  std::vector<const Group*> groups;
  StepPlan plan;
};

/// Largest |a - b| over a parameter relative to the largest |b| of that parameter, with its name.
inline std::pair<double, std::string> largest_relative_difference(const ParameterList& list,
                                                                  const std::vector<double>& a,
                                                                  const std::vector<double>& b) {
  std::pair<double, std::string> worst{0, ""};
  for (const Parameter& p : list.all()) {
    double difference = 0, largest = 0;
    for (int64_t i = p.offset; i < p.offset + p.size; ++i) {
      const double d = std::abs(a[i] - b[i]);
      difference = d <= difference ? difference : d;  // keeps NaN
      largest = std::max(largest, std::abs(b[i]));
    }
    if (difference == 0) continue;
    const double relative = difference / largest;
    if (!(relative <= worst.first)) worst = {relative, p.name};
  }
  return worst;
}

}  // namespace longstraw::reference
