// A run: from settings to updated weights, tick by tick.
#pragma once

#include "longstraw/comm/signals.hpp"
#include "longstraw/sim/problem.hpp"
#include "longstraw/sim/start.hpp"

namespace longstraw {

/// How a run ended; the value is the exit status. `stopped`: in time, with a good dump.
enum class RunResult { finished = 0, failed = 1, stopped = 3 };

/// Refuses what would keep this run from starting in its folder or from its dump. Collective over
/// `grid`.
void check_run(const Problem& problem, const RunOptions& options, const Grid& grid);

/// Runs to the end, or until it must stop, and writes history, gradients, dumps and weights into
/// the run folder. Collective over `grid`.
RunResult run(const Problem& problem, const RunOptions& options, const Signals& signals,
              const Grid& grid);

/// Log-probabilities of every response under the problem's model, by response id. Collective over
/// `grid`.
Scores score(const Problem& problem, const Grid& grid);

}  // namespace longstraw
