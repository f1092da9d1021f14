// A run: from settings to updated weights, tick by tick.
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
};

/// Opens checkpoint and rollouts and refuses what cannot work: see `check_rollouts`; sequences
/// longer than the model's rotary embedding vouches for; more groups a step than there are.
/// Collective over `grid`.
Problem open_problem(const Settings& settings, const Grid& grid);

/// Says what was read, on how many ranks, with which kernels, and what the weights will take.
void log_header(const Problem& problem, const Grid& grid);

/// How a run ended; the value is the exit status.
enum class RunResult { finished = 0, failed = 1 };

/// Runs to the end and writes history, gradients and weights into `folder`, whose deck.ini will be
/// `completed_deck`. Collective over `grid`.
RunResult run(const Problem& problem, const std::string& folder, const std::string& completed_deck,
              const Grid& grid);

/// Log-probabilities of every response under the problem's model, by response id. Collective over
/// `grid`.
Scores score(const Problem& problem, const Grid& grid);

}  // namespace longstraw
