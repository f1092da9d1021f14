// What a command works on: settings, checkpoint, model and rollouts.
#pragma once

#include "longstraw/io/checkpoint.hpp"
#include "longstraw/sim/settings.hpp"

#include <string>

namespace longstraw {

/// Everything that a command works on, opened and checked, with nothing computed yet.
struct Problem {
  Settings settings;
  Checkpoint checkpoint;
  Model model;
  Rollouts rollouts;
  std::string deck{};  ///< completed
};

/// Opens checkpoint and rollouts and refuses what cannot work: see `check_rollouts`; sequences
/// longer than the model's rotary embedding vouches for; more groups a step than there are.
/// Collective over `grid`.
Problem open_problem(const Settings& settings, const Grid& grid);

/// Says what was read, on how many ranks, with which kernels, and what the weights will take.
void log_header(const Problem& problem, const Grid& grid);

}  // namespace longstraw
