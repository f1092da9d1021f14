#include "longstraw/sim/time_limit.hpp"

#include "longstraw/core/check.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

namespace longstraw {
namespace {

constexpr int64_t minute = 60, hour = 60 * minute, day = 24 * hour;

// Seconds since this process began: the system tells it in clock ticks since its own start.
double process_age() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  timespec since_boot{};
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos || ::clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return 0;
  // The second field is the name, in brackets; the start is the 22nd.
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  if (!(fields >> ticks)) return 0;
  return static_cast<double>(since_boot.tv_sec) + 1e-9 * static_cast<double>(since_boot.tv_nsec) -
         ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::optional<double> moment_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return std::nullopt;
  const int64_t seconds = std::atoll(value);
  return seconds > 0 ? std::optional<double>(static_cast<double>(seconds)) : std::nullopt;
}

}  // namespace

int64_t parse_duration(const std::string& text) {
  const std::regex with_days(R"((\d{1,5})-(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}))?)");
  const std::regex without(R"((?:(\d{1,6}):)?(\d{1,8})(?::(\d{1,2}))?)");
  std::smatch part;
  const auto number = [&](int i) { return part[i].matched ? std::stoll(part[i]) : int64_t{0}; };
  int64_t seconds = 0;
  if (std::regex_match(text, part, with_days)) {
    seconds = number(1) * day + number(2) * hour + number(3) * minute + number(4);
  } else if (std::regex_match(text, part, without)) {
    // Two numbers are minutes and seconds, as Slurm reads them.
    if (part[1].matched && !part[3].matched)
      seconds = number(1) * minute + number(2);
    else
      seconds = number(1) * hour + number(2) * minute + number(3);
  }
  require(seconds > 0,
          str("\"{}\" is no time (HH:MM:SS, D-HH:MM:SS, MM:SS, or minutes; above 0)", text), 2);
  return seconds;
}

std::string duration_text(int64_t seconds) {
  const std::string days = seconds >= day ? str("{}-", seconds / day) : "";
  return str("{}{:02}:{:02}:{:02}", days, seconds % day / hour, seconds % hour / minute,
             seconds % minute);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

JobTimes job_times() {
  return {.process_start = seconds_now() - process_age(),
          .start = moment_in("SLURM_JOB_START_TIME"),
          .end = moment_in("SLURM_JOB_END_TIME")};
}

std::optional<Deadline> deadline_of(int64_t limit, const JobTimes& times) {
  std::optional<Deadline> found;
  if (limit > 0)
    found = {times.start.value_or(times.process_start) + static_cast<double>(limit),
             "time limit " + duration_text(limit)};
  if (times.end && (!found || *times.end < found->at)) found = {*times.end, "end of the Slurm job"};
  return found;
}

}  // namespace longstraw
