// Whether a run goes on: signals, the time that is left, the stop file; one answer on all ranks.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/comm/signals.hpp"
#include "longstraw/sim/time_limit.hpp"

#include <optional>
#include <string>

namespace longstraw {

/// How long ticks take, from those that were done. `work` is what a tick does in any unit that is
/// the same for all; ticks differ, the later ones of a prompt and backward ones take longer.
class TickTimes {
 public:
  void add(double work, double seconds);
  /// Seconds that a tick of this much work may take: no less than the longest so far, nor than at
  /// the slowest pace so far. 0 before the first tick.
  double expected(double work) const;

 private:
  double longest_ = 0;
  double slowest_ = 0;  // seconds of a unit of work
};

/// Why a run must stop at `now`, which another tick and then a dump would carry beyond `deadline`;
/// nothing if it need not. Some seconds are kept for the program's end.
std::optional<std::string> time_is_up(const Deadline& deadline, double now, double tick_seconds,
                                      double dump_seconds);

class Clock {
 public:
  /// `limit`: of -t, in seconds, 0: none. A file `stop` that lies in `folder` is of an earlier run
  /// and is removed; one that comes later stops this run and stays there, so that a batch script
  /// sees why. Collective over `grid`, which must outlive this, as must `signals`.
  Clock(const Grid& grid, const Signals& signals, const std::string& folder, int64_t limit);

  /// Why the run must stop before its next tick, of this much work: a signal on any rank, rank 0's
  /// time, the stop file; nothing: go on. The same on every rank. `dump_seconds`: of a dump, as far
  /// as known. Collective over `grid`: one
  /// maximum, as long as there is no reason.
  std::optional<std::string> verdict(double work, double dump_seconds);
  /// Tells what a tick took.
  void did(double work, double seconds) { times_.add(work, seconds); }

 private:
  int64_t own_reason(std::string& text, double work, double dump_seconds) const;

  const Grid& grid_;
  const Signals& signals_;
  std::string stop_file_;
  std::optional<Deadline> deadline_;
  TickTimes times_;
};

}  // namespace longstraw
