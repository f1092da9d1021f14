// Going on from a dump: which one, and whether this run may.
#pragma once

#include "longstraw/core/log.hpp"
#include "longstraw/io/dump_folder.hpp"
#include "longstraw/sim/problem.hpp"

#include <optional>
#include <string>
#include <vector>

namespace longstraw {

/// What -r asks for.
enum class Restart {
  none,       ///< a new run
  latest,     ///< from the latest dump of the run folder, which must have one
  automatic,  ///< the same, or a new run where there is none
  file        ///< from the dump that is named
};

struct RestartRequest {
  Restart from = Restart::none;
  std::string file{};
  bool force = false;  ///< take changes of the deck or the data that give the run another meaning
};

/// What there is to say of a restart, once the run's log is there.
struct Note {
  Level level;
  std::string text;
};
using Notes = std::vector<Note>;

/// The dump to go on from, if there is one. Names half-written dumps, which are passed over.
/// Collective over `grid`.
std::optional<std::string> find_dump(const RestartRequest& request, const DumpFolder& folder,
                                     const Grid& grid, Notes& notes);

/// What tells a run from others.
struct RunIdentity {
  std::string deck;  ///< completed
  std::string model, model_digest;
  std::string rollouts, rollouts_digest;
  int64_t ranks = 1;

  /// Lists all of it.
  void fields(DumpFields& fields);
};
/// Collective over `grid`.
RunIdentity identity_of(const Problem& problem, const Grid& grid);

/// Where a run is.
struct Cursor {
  Tick next{};
  int64_t ticks = 0;        ///< done since the run began
  int64_t between_steps{};  ///< 1: the next tick is the first of its step
  int64_t at_end{};         ///< 1: all steps of the deck were done

  /// Lists all of it. That `next` is a tick of its step is for others to check.
  void fields(DumpFields& fields);
};

/// Whether a deck's key may differ from that of the dump.
enum class MayChange { yes, forced, no };
MayChange may_change(const std::string& key);

/// Refuses, by name, changes from the deck of `dump` that would give the run another meaning,
/// unless they are forced and the dump lies between two steps (`between_steps`). Returns which keys
/// have changed. The same on all ranks.
Notes check_deck(const std::string& before, const std::string& now, const std::string& dump,
                 bool between_steps, bool force);

/// Refuses, by name, a dump of another model or other rollouts (which may be forced), and what
/// `check_deck` does.
Notes check_restart(const RunIdentity& dumped, const RunIdentity& now, const std::string& dump,
                    bool between_steps, bool force);

}  // namespace longstraw
