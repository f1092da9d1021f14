// What a run tells: its header, a line a step in history and log, and a line of progress.
#pragma once

#include "longstraw/core/dump_fields.hpp"
#include "longstraw/core/timer.hpp"
#include "longstraw/policy/metrics.hpp"
#include "longstraw/sim/settings.hpp"

#include <nlohmann/json_fwd.hpp>

#include <array>
#include <map>
#include <string>
#include <vector>

namespace longstraw {

/// Seconds of a step by phase, as the history names them.
struct PhaseSeconds {
  double capture = 0, score = 0, replay = 0, prompt_backward = 0, update = 0, dump = 0;
  double& of(TickKind kind);
  double total() const;
};

/// What became of a step.
enum class StepOutcome { updated, skipped_no_signal, skipped_nonfinite, stopped_nonfinite };
const char* name_of(StepOutcome outcome);

struct StepReport {
  int64_t step = 0;
  StepSummary summary{};
  double grad_norm = 0;
  double lr = 0;
  GradientMode mode = GradientMode::exact;
  StepOutcome outcome = StepOutcome::updated;
  std::string nonfinite_response{};
  PhaseSeconds seconds{};
  std::map<std::string, int64_t> bytes_peak{};  ///< by label and "total": largest of the ranks
  std::vector<std::string> restarts{};          ///< dumps that the step went on from

  /// Lists seconds, peaks and restarts so far.
  void fields(DumpFields& fields);
};

/// One line of history.jsonl.
nlohmann::ordered_json history_line(const StepReport& report);
/// The same for people, short.
std::string step_line(const StepReport& report, int64_t steps);

/// Peaks of the ledger, the largest of the ranks each. Collective over `grid`.
std::map<std::string, int64_t> peak_bytes(const Ledger& ledger, const Grid& grid);

/// "3.2 GiB".
std::string bytes_text(double bytes);
/// "1 h 02 min", "3 min 05 s", "12.3 s".
std::string seconds_text(double seconds);

/// Work done and to do, in tokens weighted by what they cost; speaks at most every few seconds: on
/// a terminal as one line that is overwritten, elsewhere as a line every half minute.
class Progress {
 public:
  Progress(double work, bool terminal) : work_(work), terminal_(terminal) {}
  /// Work that was done before, and shall not count as speed.
  void done_before(double work) { done_ = before_ = work; }
  /// Work of the ticks of a step with this plan.
  static double work(std::span<const Group* const> groups, const StepPlan& plan);
  /// `tokens` of a tick of this kind are done, in the part of the work that `where` names.
  void done(TickKind kind, int64_t tokens, const std::string& where);
  /// Removes the line from the terminal, before something else is written.
  void clear();
  /// Cost of a token of a tick of this kind, in forward passes.
  static double cost(TickKind kind);

 private:
  double work_;
  bool terminal_;
  bool shown_ = false;
  double done_ = 0;
  double before_ = 0;
  int64_t tokens_ = 0;
  Timer timer_;
  double spoke_ = 0;
};

}  // namespace longstraw
