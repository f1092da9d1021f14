// When a run must have ended: what the user said with -t, and what the batch system gave it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace longstraw {

/// Seconds of a time as Slurm's users write it: MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS.
/// Throws `Error` of status 2.
int64_t parse_duration(const std::string& text);
/// "00:02:00", "1-00:00:00".
std::string duration_text(int64_t seconds);

/// Moments, in seconds of the system's clock.
struct JobTimes {
  double process_start = 0;              ///< so that a slow start-up counts
  std::optional<double> start{}, end{};  ///< of the batch job, where it says so
};

/// From the environment (SLURM_JOB_START_TIME, SLURM_JOB_END_TIME) and /proc.
JobTimes job_times();
/// The system's clock.
double seconds_now();

/// A moment, and what it is called.
struct Deadline {
  double at = 0;
  std::string name;
};

/// The earlier one of the job's end and `limit` seconds (0: none) after its start, or after this
/// process's where no job has one; nothing where there is neither.
std::optional<Deadline> deadline_of(int64_t limit, const JobTimes& times);

}  // namespace longstraw
