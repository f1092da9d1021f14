#include "longstraw/core/dump_fields.hpp"

#include <algorithm>

namespace longstraw {

std::vector<DumpPiece> flat_pieces(Range array, const Tensor& values, int64_t begin, Range owned) {
  const Range held{std::max(array.begin, begin), std::min(array.end, begin + values.size())};
  std::vector<DumpPiece> pieces;
  const auto piece = [&](int64_t from, int64_t to, bool own) {
    from = std::max(from, held.begin), to = std::min(to, held.end);
    if (from < to)
      pieces.push_back({.first = from - array.begin,
                        .values = values.rows(from - begin, to - begin),
                        .own = own});
  };
  piece(held.begin, owned.begin, false);
  piece(owned.begin, owned.end, true);
  piece(std::max(owned.begin, owned.end), held.end, false);
  return pieces;
}

}  // namespace longstraw
