// A block: the tokens that all ranks process together in one tick, and each rank's slice of it.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/core/split.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace longstraw {

/// Consecutive tokens at global `positions`, cut into one contiguous slice a rank (sizes differ by
/// at most one; a slice may be empty).
struct Block {
  Range positions;
  std::vector<int64_t> slice_sizes;      ///< tokens by rank
  Range mine;                            ///< global positions of this rank's slice
  std::vector<int32_t> ids;              ///< input tokens of this rank's slice
  std::vector<int64_t> slice_positions;  ///< global position of each of them

  int64_t tokens() const { return positions.size(); }
};

/// Input tokens at some positions of a sequence.
using IdsAt = std::function<std::vector<int32_t>(Range positions)>;

/// The block at `positions` of a sequence; asks for the input tokens of this rank's slice only.
Block make_block(const Grid& grid, Range positions, const IdsAt& ids_at);

}  // namespace longstraw
