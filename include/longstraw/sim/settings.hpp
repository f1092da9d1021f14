// All settings of a run, read from the deck in one place.
#pragma once

#include "longstraw/deck/deck.hpp"
#include "longstraw/policy/objective.hpp"
#include "longstraw/sim/optimizer.hpp"
#include "longstraw/sim/stepper.hpp"

#include <string>

namespace longstraw {

struct DumpSettings {
  int64_t every_ticks = 0;      ///< 0: not by ticks
  double every_seconds = 1800;  ///< 0: not by time
  bool at_exit = true;          ///< when the run stops in time, and when it has finished
  int64_t keep = 2;
};

struct Settings {
  std::string checkpoint;  ///< folder
  DType precision = DType::float32;
  RolloutSettings rollouts;
  ObjectiveSettings objective;
  OptimizerSettings optimizer;
  StepperSettings stepper;
  int64_t steps = 0;  ///< 0: as many as the epochs have
  int64_t seed = 0;
  double watchdog_seconds = 1800;  ///< 0: off
  bool write_gradients = false;
  DumpSettings dump;
};

/// Reads every key of the deck that a command uses, in the order of `input/defaults.ini`.
Settings read_settings(Deck& deck);

/// Optimizer steps that the epochs have over so many groups; the largest number if there are more.
int64_t steps_in_epochs(const RolloutSettings& rollouts, int64_t groups);
/// Refuses more groups a step than there are, more steps than the epochs have, and more than a run
/// can list.
void check_steps(const Settings& settings, int64_t groups);

/// Indices of the rollouts' groups by step: epochs one after the other, `groups_per_step` at a time
/// (the last step of an epoch may have fewer), in the order of the file, or shuffled by (seed,
/// epoch).
std::vector<std::vector<int64_t>> steps_of(const Settings& settings, int64_t groups);

}  // namespace longstraw
