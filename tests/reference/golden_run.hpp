// One step of a golden case by the program's own parts: model, stepper and optimizer.
#pragma once

#include "longstraw/sim/optimizer.hpp"
#include "longstraw/sim/rollout_files.hpp"
#include "longstraw/sim/weights.hpp"
#include "reference/golden.hpp"
#include "reference/step_run.hpp"

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

/// What a golden case's files hold.
struct GoldenFiles {
  GoldenFiles(const Golden& golden, const Grid& grid)
      : checkpoint(Checkpoint::open(golden.model(), grid)),
        rollouts(open_rollouts(golden.rollouts(), OnBadSample::stop, grid)) {}
  std::vector<const Group*> group_pointers() const {
    std::vector<const Group*> all;
    for (const Group& group : rollouts.groups) all.push_back(&group);
    return all;
  }

  Checkpoint checkpoint;
  Rollouts rollouts;
};

/// A step of a golden case under one of its objectives.
struct GoldenRun : GoldenFiles, StepRun {
  GoldenRun(const Golden& golden, const std::string& objective_name, const Grid& on, DType type,
            const StepperSettings& settings)
      : GoldenFiles(golden, on),
        StepRun(on, open_model(checkpoint), group_pointers(),
                objective_of(golden.objective(objective_name)), type, settings),
        optimizer(ledger, grid, parameters, optimizer_of(golden.description().at("optimizer"))) {
    load_weights(checkpoint, parameters, grid);
  }

  static OptimizerSettings optimizer_of(const nlohmann::json& o) {
    return {.lr = o.at("lr"),
            .beta1 = o.at("betas")[0],
            .beta2 = o.at("betas")[1],
            .eps = o.at("eps"),
            .weight_decay = o.at("weight_decay"),
            .max_grad_norm = o.at("max_grad_norm")};
  }

  Optimizer optimizer;
};

/// transformers' name of a parameter (that of the text model alone) for the checkpoint's.
inline std::string golden_name(std::string name) {
  const std::string wrapped = "model.language_model.";
  if (name.starts_with(wrapped)) name = "model." + name.substr(wrapped.size());
  return name;
}

}  // namespace longstraw::reference
