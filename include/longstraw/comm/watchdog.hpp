// Ends a job of which a rank hangs, and says what every rank was at.
#pragma once

#include "longstraw/comm/grid.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace longstraw {

/// What one rank's watchdog told when the alarm was raised.
struct RankSign {
  int rank = 0;
  Activity::Moment moment{};
  double still_seconds = 0;  ///< since its last progress
};

/// The message for a job of `ranks` ranks, of which those in `signs` answered: what each was at,
/// and which are the likely cause: those that gave no sign, else those behind in collectives.
/// Nothing if one of them still gets on, so that nothing hangs: it did so less than half of
/// `seconds` ago.
std::optional<std::string> hang_text(const std::vector<RankSign>& signs, int ranks, double seconds);

/// A thread a rank, for as long as this lives. Where a rank's activity shows no progress for
/// `seconds` (0: off), every rank's thread writes what its rank is at into a folder of the run
/// folder, which stays until the run goes on; a little later the lowest rank that did prints one
/// message and aborts the job with status 1. Time in which the process itself was stopped does not
/// count.
class Watchdog {
 public:
  /// `folder` exists and is seen by all ranks. Collective over `grid`, which must outlive this.
  Watchdog(const Grid& grid, const std::string& folder, double seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();
  /// Waits; false: it is over.
  bool wait(double seconds);
  void look();
  std::string file(int rank) const;
  void report() const;
  std::vector<RankSign> signs() const;
  void conclude();

  const Grid& grid_;
  std::string folder_;
  double seconds_;
  double pause_;  // between two looks
  double still_ = 0;
  int64_t progress_ = -1;
  std::chrono::steady_clock::time_point looked_;
  bool over_ = false;
  std::mutex mutex_;
  std::condition_variable ends_;
  std::thread thread_;
};

}  // namespace longstraw
