// Checksums of what is stored. They find damage and mistaken files, not malice.
#pragma once

#include "longstraw/comm/grid.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace longstraw {

/// Sum (mod 2^64) over elements of their bits times a key of their place `first`, `first` + 1, ...
/// in the array: parts can be summed in any order by any rank; no flip of bits in one element goes
/// unseen. `element_bytes` is 1, 4 or 8.
uint64_t content_sum(const void* values, int64_t elements, int64_t element_bytes, int64_t first);

/// A digest of texts, one after the other (FNV-1a, 64 bits).
class Digest {
 public:
  void add(std::string_view bytes);
  uint64_t value() const { return value_; }
  /// 16 hexadecimal digits.
  std::string text() const { return text_of(value_); }
  static std::string text_of(uint64_t value);

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

/// Bytes of a file that make one digest.
constexpr int64_t digest_piece = int64_t{64} << 20;
/// Digest of the content of the file at `path`: of its one piece, or of its pieces' digests, the
/// same on any number of ranks. Each rank reads its share of the pieces. Collective over `grid`.
std::string file_digest(const std::string& path, const Grid& grid);

}  // namespace longstraw
