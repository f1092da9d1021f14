// The commands of the program: arguments -> deck -> problem -> (a check ends here) -> work.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/sim/arguments.hpp"

namespace longstraw {

/// Does what the command line asks for and returns the exit status. Collective over `grid`.
int perform(const Arguments& arguments, const Grid& grid);

}  // namespace longstraw
