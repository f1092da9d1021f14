#include "longstraw/comm/watchdog.hpp"

#include "longstraw/comm/session.hpp"
#include "longstraw/core/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

namespace longstraw {
namespace {

namespace fs = std::filesystem;

// For the answers of ranks that looked just before the alarm was raised.
constexpr double grace_seconds = 2;
// A rank may hang so that its output, its files or MPI's end block, too: then the system ends it.
constexpr unsigned last_seconds = 20;

std::string what_of(const RankSign& sign) {
  const auto& m = sign.moment;
  return str(
      "{}, {}, {} collectives begun", m.phase,
      m.collective.empty() ? "computing or at files" : "in a collective (" + m.collective + ")",
      m.begun);
}

// "rank 3", "ranks 0, 2-5".
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += str("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (last > i) text += str("{}{}", last > i + 1 ? "-" : ", ", ranks[last]);
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::vector<int> silent(const std::vector<RankSign>& signs, int ranks) {
  std::vector<int> missing;
  for (int rank = 0; rank < ranks; ++rank)
    if (std::none_of(signs.begin(), signs.end(), [&](auto& s) { return s.rank == rank; }))
      missing.push_back(rank);
  return missing;
}

std::vector<int> behind(const std::vector<RankSign>& signs) {
  const auto [least, most] = std::minmax_element(
      signs.begin(), signs.end(), [](auto& a, auto& b) { return a.moment.begun < b.moment.begun; });
  std::vector<int> found;
  if (least->moment.begun == most->moment.begun) return found;
  for (const auto& sign : signs)
    if (sign.moment.begun == least->moment.begun) found.push_back(sign.rank);
  return found;
}

}  // namespace

std::optional<std::string> hang_text(const std::vector<RankSign>& signs, int ranks,
                                     double seconds) {
  if (signs.empty()) return std::nullopt;
  double still = 0;
  std::map<std::string, std::vector<int>> by_what;
  for (const auto& sign : signs) {
    if (sign.still_seconds < seconds / 2) return std::nullopt;
    still = std::max(still, sign.still_seconds);
    by_what[what_of(sign)].push_back(sign.rank);
  }
  const auto missing = silent(signs, ranks), late = behind(signs);
  std::string text =
      str("no progress for {:.0f} s (run.watchdog_seconds = {:g}), the job ends", still, seconds);
  for (const auto& [what, who] : by_what) text += str("\n  {}: {}", ranks_text(who), what);
  if (!missing.empty())
    text += str("\n  {}: no sign (stopped, or its machine is gone)", ranks_text(missing));
  if (!missing.empty() || !late.empty())
    text += str("\n  likely hung: {}", ranks_text(missing.empty() ? late : missing));
  else
    text += "\n  no rank is behind the others: look at network and file system";
  return text;
}

Watchdog::Watchdog(const Grid& grid, const std::string& folder, double seconds)
    : grid_(grid),
      folder_(folder + "/watchdog"),
      seconds_(seconds),
      pause_(std::clamp(seconds / 60, 0.05, 30.0)),
      looked_(std::chrono::steady_clock::now()) {
  agree(grid, [&] {
    // Of an earlier job, which hung.
    if (grid.rank() == 0) fs::remove_all(folder_);
  });
  if (seconds_ > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Watchdog::wait(double seconds) {
  std::unique_lock lock(mutex_);
  return !ends_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; });
}

void Watchdog::look() {
  const auto now = std::chrono::steady_clock::now();
  const double since = std::chrono::duration<double>(now - looked_).count();
  const int64_t progress = grid_.activity().moment().progress;
  looked_ = now;
  // Much longer than the pause: this process was stopped, as for another job, and goes on now.
  still_ = progress == progress_ ? still_ + std::min(since, 2 * pause_ + grace_seconds) : 0;
  progress_ = progress;
}

std::string Watchdog::file(int rank) const { return str("{}/rank-{}", folder_, rank); }

void Watchdog::report() const {
  const auto moment = grid_.activity().moment();
  std::error_code ignored;
  fs::create_directory(folder_, ignored);
  const std::string path = file(grid_.rank());
  std::ofstream(path + ".tmp") << str("{} {} {}\n{}\n{}\n", moment.begun, moment.progress, still_,
                                      moment.collective, moment.phase);
  fs::rename(path + ".tmp", path, ignored);
}

std::vector<RankSign> Watchdog::signs() const {
  std::vector<RankSign> found;
  for (int rank = 0; rank < grid_.size(); ++rank) {
    std::ifstream in(file(rank));
    RankSign sign{.rank = rank};
    std::string rest;
    if (in >> sign.moment.begun >> sign.moment.progress >> sign.still_seconds &&
        std::getline(in, rest) && std::getline(in, sign.moment.collective) &&
        std::getline(in, sign.moment.phase))
      found.push_back(sign);
  }
  return found;
}

void Watchdog::conclude() {
  const auto all = signs();
  if (all.empty() || all.front().rank != grid_.rank()) return;
  const auto text = still_ > 0 ? hang_text(all, grid_.size(), seconds_) : std::nullopt;
  if (text) {
    // What was told stays in the folder, so that no other rank concludes while the job ends.
    ::alarm(last_seconds);
    log(Level::error, *text);
    Session::abort(1);
  }
  // At once: a rank that reads meanwhile must not find its own sign without those of lower ranks.
  const std::string passed = folder_ + "-passed";
  std::error_code ignored;
  fs::rename(folder_, passed, ignored);
  fs::remove_all(passed, ignored);
}

void Watchdog::watch() {
  std::error_code ignored;
  const auto longest = static_cast<unsigned>(seconds_) + last_seconds;
  while (wait(pause_)) {
    look();
    ::alarm(longest);
    const bool raised = still_ >= seconds_ || fs::exists(folder_, ignored);
    if (raised) report();
    ::alarm(0);
    if (!raised) continue;
    if (!wait(grace_seconds + 2 * pause_)) return;
    look();
    ::alarm(longest);
    conclude();
    ::alarm(0);
    // Time for the lowest rank to end the job, or for a false alarm to pass.
    if (!wait(grace_seconds + 2 * pause_)) return;
  }
}

}  // namespace longstraw
