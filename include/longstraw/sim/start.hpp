// How a run starts: what its folder, and the dump that it is to go on from, say of that. Nothing is
// written.
#pragma once

#include "longstraw/io/run_folder.hpp"
#include "longstraw/sim/restart.hpp"

#include <memory>
#include <optional>
#include <string>

namespace longstraw {

struct RunOptions {
  std::string folder;
  RestartRequest restart{};
  int64_t time_limit = 0;  ///< seconds from the job's start; 0: none but the batch system's
};

/// Whether the run folder may hold what an earlier life of the run left.
RunFolder::Earlier earlier(const RunOptions& options);

struct Start {
  bool finished = false;  ///< all of it was done by an earlier life; there is nothing to go on from
  std::optional<RunIdentity> identity{};  ///< where there is a dump that it was held against
  std::unique_ptr<DumpReader> dump{};     ///< to go on from, if there is one
  Notes notes{};
};

/// Refuses what would keep this run from starting in its folder or from its dump. Collective over
/// `grid`.
Start start_of(const Problem& problem, const RunOptions& options, const Grid& grid);

}  // namespace longstraw
