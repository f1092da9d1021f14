#include "longstraw/model/block.hpp"

#include <numeric>

namespace longstraw {

Block make_block(const Grid& grid, Range positions, const IdsAt& ids_at) {
  Block block;
  block.positions = positions;
  for (int r = 0; r < grid.size(); ++r)
    block.slice_sizes.push_back(grid.part(positions.size(), r).size());
  const Range slice = grid.mine(positions.size());
  block.mine = {positions.begin + slice.begin, positions.begin + slice.end};
  block.ids = ids_at(block.mine);
  LONGSTRAW_ASSERT(std::ssize(block.ids) == slice.size());
  block.slice_positions.resize(slice.size());
  std::iota(block.slice_positions.begin(), block.slice_positions.end(), block.mine.begin);
  return block;
}

}  // namespace longstraw
