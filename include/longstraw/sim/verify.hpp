// `verify`: is the gradient right, on the user's own checkpoint and rollouts? For the deck's first
// step: how far the frozen gradient is from the exact one; the exact one against differences of the
// loss, against float64, and against the gradient file of another run.
#pragma once

#include "longstraw/sim/distance.hpp"
#include "longstraw/sim/first_step.hpp"

#include <map>
#include <string>
#include <vector>

namespace longstraw {

struct VerifyOptions {
  int64_t directions = 2;  ///< random ones, beside that of the gradient itself; 0: no differences
  std::string against{};   ///< gradient-STEP.h5 of another run; empty: none
};

/// Two gradients that should differ by rounding.
struct RoundingCheck {
  std::string of;
  Distance all;
  NamedDistance largest;  ///< parameter of the largest relative difference
  Bound error;
};

struct VerifyReport {
  int ranks = 1;
  DType precision = DType::float32;
  StepSummary summary{};  ///< of the step
  int64_t groups = 0;
  int64_t responses = 0;
  std::vector<NamedDistance> frozen{};  ///< from exact, by parameter
  std::vector<DifferenceCheck> differences{};
  std::vector<RoundingCheck> rounding{};
  std::map<std::string, int64_t> bytes_peak{};
  double seconds = 0;

  bool held() const;
};

/// Refuses options that this problem cannot be verified with, before anything is computed.
/// Collective over `grid`.
void check_verify(const Problem& problem, const VerifyOptions& options, const Grid& grid);

/// A line for the header.
void log_verify_memory(const Problem& problem, const VerifyOptions& options, const Grid& grid);

/// Collective over `grid`.
VerifyReport verify(const Problem& problem, const VerifyOptions& options, const Grid& grid);

/// For people: a table, line by line.
std::vector<std::string> verify_lines(const Problem& problem, const VerifyReport& report);
/// For programs: the same figures.
std::string verify_json(const Problem& problem, const VerifyReport& report);

}  // namespace longstraw
