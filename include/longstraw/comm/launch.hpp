// How this process was started: what launchers leave in the environment, held against what MPI
// sees.
#pragma once

#include "longstraw/comm/grid.hpp"

#include <cstdint>
#include <string>

namespace longstraw {

/// What a launcher says that does not speak to this MPI: it starts every process as rank 0 of 1.
struct Strangers {
  std::string variable;
  int64_t processes = 1;
  int64_t number = 0;  ///< of this process among them
};

/// None (one process) where MPI sees the ranks that the launcher started.
Strangers strangers(const Grid& grid);

/// Refuses to compute among strangers, each of which would do all the work and write all files.
void check_launch(const Strangers& others);

}  // namespace longstraw
