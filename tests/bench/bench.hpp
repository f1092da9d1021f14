// The parts of the benchmark: kernels by themselves, and steps of a model it makes itself.
#pragma once

#include "longstraw/comm/grid.hpp"

#include <cstdint>
#include <vector>

namespace longstraw::bench {

/// Every kernel at the sizes of the bench model.
void bench_kernels(const Grid& grid);

struct StepSizes {
  std::vector<int64_t> prompts = {8192};  ///< tokens
  int64_t members = 8;
  int64_t response = 128;  ///< tokens
  int64_t block_tokens = 2048;
  bool exact = true;
};

/// Capture of a prompt, and group steps with the frozen and the exact gradient.
void bench_steps(const Grid& grid, const StepSizes& sizes);

/// A dump to the current folder's disk, against a plain write of the same bytes.
void bench_dumps(const Grid& grid);

}  // namespace longstraw::bench
