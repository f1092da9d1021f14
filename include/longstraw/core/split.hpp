// How a count of things (tokens, heads, parameters) is cut into contiguous parts, one a rank.
#pragma once

#include <algorithm>
#include <cstdint>

namespace longstraw {

/// Half-open range [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Part `index` of `count` things cut into `parts` contiguous parts, whose sizes differ by at most
/// one; the larger parts come first. Parts may be empty.
constexpr Range part_of(int64_t count, int parts, int index) {
  const int64_t base = count / parts, extra = count % parts;
  const int64_t begin = index * base + std::min<int64_t>(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

}  // namespace longstraw
