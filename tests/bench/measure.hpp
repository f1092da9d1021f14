// Timing of one thing against the matrix products of the same ranks, and the lines that say so.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/core/field.hpp"
#include "longstraw/core/stream.hpp"

#include <functional>
#include <string>

namespace longstraw::bench {

/// Rate of a float32 product of 1024 x 1024 x 1024, GFLOP/s of this rank while all ranks compute
/// one: best of a few. Collective over `grid`.
double sgemm_rate(const Grid& grid, Ledger& ledger, Stream& stream);

struct Measurement {
  double seconds = 0;     ///< of the slowest rank
  double operations = 0;  ///< counted, of all ranks
  double share = 0;       ///< of what the ranks' products would have done in that time
};

/// Runs `act` on all ranks `times` times and keeps the quickest; products are timed before and
/// after, so that a machine that changes its speed does not change the share. Collective over
/// `grid`.
Measurement measure(const Grid& grid, Ledger& ledger, Stream& stream, int times,
                    const std::function<void()>& act);

void print_heading(const std::string& what);
void print_line(const std::string& name, const Measurement& m);

}  // namespace longstraw::bench
