// One step of a golden case by the program's own parts: model, stepper and optimizer.
#pragma once

#include "longstraw/sim/optimizer.hpp"
#include "longstraw/sim/stepper.hpp"
#include "longstraw/sim/weights.hpp"
#include "reference/golden.hpp"

#include <functional>
#include <memory>

namespace longstraw::reference {

inline ObjectiveSettings objective_of(const nlohmann::json& o) {
  std::string deck = "[objective]\n";
  for (const auto& [key, value] : o.items()) {
    if (key == "name" || key == "old_noise") continue;
    deck += key + " = " + (value.is_string() ? value.get<std::string>() : value.dump()) + "\n";
  }
  Deck parsed(deck, "case.json");
  return read_objective(parsed);
}

/// A case opened under an objective, with state that outlives the step for tests to look at.
struct GoldenRun {
  GoldenRun(const Golden& golden, const std::string& objective_name, const Grid& grid_, DType type,
            const StepperSettings& settings)
      : grid(grid_),
        checkpoint(Checkpoint::open(golden.model(), grid_)),
        model(open_model(checkpoint)),
        parameters(ledger, type, model.parameters),
        context{grid, ledger, stream, parameters},
        rollouts(load_rollouts(golden.rollouts(), OnBadSample::stop, grid_)),
        objective(objective_of(golden.objective(objective_name))),
        stepper(context, model, objective, settings),
        optimizer(ledger, grid, parameters, optimizer_of(golden.description().at("optimizer"))) {
    load_weights(checkpoint, parameters, grid);
    for (const Group& group : rollouts.groups) groups.push_back(&group);
    plan = stepper.plan(groups);
    stepper.begin_step(groups);
  }

  static OptimizerSettings optimizer_of(const nlohmann::json& o) {
    return {.lr = o.at("lr"),
            .beta1 = o.at("betas")[0],
            .beta2 = o.at("betas")[1],
            .eps = o.at("eps"),
            .weight_decay = o.at("weight_decay"),
            .max_grad_norm = o.at("max_grad_norm")};
  }

  /// All ticks of the step but the update; `before` sees each one first.
  void run_ticks(const std::function<void(const Tick&)>& before = [](const Tick&) {}) {
    for_each_tick(0, plan, [&](const Tick& tick) {
      before(tick);
      stepper.perform(tick);
    });
  }

  /// The whole of a reduced gradient, flat, in double.
  std::vector<double> whole(const ReducedGradient& gradient) {
    const Field all(ledger, "test", parameters.weights().type(), {model.parameters.size()});
    gradient.gather(grid, all, {0, model.parameters.size()});
    return values(all);
  }

  static std::vector<double> values(const Tensor& tensor) {
    std::vector<double> to(tensor.size());
    dispatch(tensor.type(), [&]<class T>(T) {
      for (int64_t i = 0; i < tensor.size(); ++i) to[i] = tensor.data<T>()[i];
    });
    return to;
  }

  Grid grid;
  Ledger ledger;
  Stream stream;
  Checkpoint checkpoint;
  Model model;
  Parameters parameters;
  Context context;
  Rollouts rollouts;
  ObjectiveSettings objective;
  Stepper stepper;
  Optimizer optimizer;
  std::vector<const Group*> groups;
  StepPlan plan;
};

/// transformers' name of a parameter (that of the text model alone) for the checkpoint's.
inline std::string golden_name(std::string name) {
  const std::string wrapped = "model.language_model.";
  if (name.starts_with(wrapped)) name = "model." + name.substr(wrapped.size());
  return name;
}

}  // namespace longstraw::reference
