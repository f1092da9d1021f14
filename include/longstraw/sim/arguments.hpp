// The command line.
#pragma once

#include "longstraw/sim/dumped.hpp"
#include "longstraw/sim/restart.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace longstraw {

enum class Command { help, version, run, score, verify, inspect, convert, export_weights };
/// What the scores of `score` are called in the rollouts it writes.
enum class ScoreAs { policy, reference };

struct Arguments {
  Command command = Command::help;
  std::string text;                    ///< help: what to print
  std::string deck;                    ///< -i
  std::vector<std::string> overrides;  ///< section.key=value
  std::string folder;                  ///< run: -d
  RestartRequest restart;              ///< run: -r, --force
  int64_t time_limit = 0;              ///< run: -t, in seconds; 0: none
  bool check_only = false;             ///< -n
  std::string output;                  ///< score, verify, convert: -o
  ScoreAs score_as = ScoreAs::policy;  ///< score: --as
  int64_t directions = 2;              ///< verify: --directions
  std::string against;                 ///< verify: --against
  bool check_content = false;          ///< inspect: --check
  ExportOptions exported;              ///< export
  std::string target;                  ///< inspect, convert
};

/// Throws `Error` of status 2 for what it does not understand, the same on every rank.
Arguments parse_arguments(int argc, const char* const* argv);

/// Version and facts about the build, for --version.
std::string version_lines();

}  // namespace longstraw
