#include "longstraw/sim/clock.hpp"

#include <algorithm>
#include <filesystem>

namespace longstraw {
namespace {

namespace fs = std::filesystem;

// What no measured tick or dump holds: the ranks' waiting for each other, and the program's end.
constexpr double kept_seconds = 3;
constexpr double kept_share = 0.1;

// Reasons in the order of their weight; a signal is `by_signal` plus its number.
enum : int64_t { none = 0, by_file = 1, by_time = 2, by_signal = 3 };

}  // namespace

void TickTimes::add(double work, double seconds) {
  longest_ = std::max(longest_, seconds);
  if (work > 0) slowest_ = std::max(slowest_, seconds / work);
}

double TickTimes::expected(double work) const { return std::max(longest_, slowest_ * work); }

std::optional<std::string> time_is_up(const Deadline& deadline, double now, double tick_seconds,
                                      double dump_seconds) {
  const double left = deadline.at - now;
  const double needed = (1 + kept_share) * (tick_seconds + dump_seconds) + kept_seconds;
  if (left > needed) return std::nullopt;
  if (left <= 0) return str("{}: over for {:.1f} s", deadline.name, -left);
  return str("{} in {:.1f} s, a tick takes up to {:.1f} s and a dump {:.1f} s", deadline.name, left,
             tick_seconds, dump_seconds);
}

Clock::Clock(const Grid& grid, const Signals& signals, const std::string& folder, int64_t limit)
    : grid_(grid),
      signals_(signals),
      stop_file_(folder + "/stop"),
      deadline_(deadline_of(limit, job_times())) {
  agree(grid, [&] {
    if (grid.rank() == 0) fs::remove(stop_file_);
  });
}

int64_t Clock::own_reason(std::string& text, double work, double dump_seconds) const {
  if (signals_.received() != 0) return by_signal + signals_.received();
  if (grid_.rank() != 0) return none;
  if (deadline_) {
    const auto up = time_is_up(*deadline_, seconds_now(), times_.expected(work), dump_seconds);
    if (up) text = *up;
    if (up) return by_time;
  }
  std::error_code failed;
  text = "file " + stop_file_;
  return fs::exists(stop_file_, failed) ? by_file : none;
}

std::optional<std::string> Clock::verdict(double work, double dump_seconds) {
  std::string text;
  const int64_t own = own_reason(text, work, dump_seconds);
  // The weightiest reason, of the lowest rank that has it.
  const int64_t ranks = grid_.size();
  const int64_t first = grid_.max(own * ranks + (ranks - 1 - grid_.rank()));
  const int64_t reason = first / ranks, rank = ranks - 1 - first % ranks;
  if (reason == none) return std::nullopt;
  if (reason > by_signal)
    return str("{} on rank {}", Signals::name(static_cast<int>(reason - by_signal)), rank);
  return grid_.broadcast(text, 0);
}

}  // namespace longstraw
