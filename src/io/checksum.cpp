#include "longstraw/io/checksum.hpp"

#include "longstraw/core/check.hpp"
#include "longstraw/io/file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace longstraw {
namespace {

constexpr uint64_t fnv_prime = 0x100000001b3;

template <class Word>
uint64_t weighted_sum(const void* values, int64_t count, int64_t first) {
  const auto* bytes = static_cast<const std::byte*>(values);
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    Word word;
    std::memcpy(&word, bytes + i * sizeof word, sizeof word);
    uint64_t key = static_cast<uint64_t>(first + i) * 0x9e3779b97f4a7c15;
    key = (key ^ (key >> 29)) | 1;  // odd, so that no flipped bit is multiplied away
    sum += static_cast<uint64_t>(word) * key;
  }
  return sum;
}

Digest piece_digest(const std::string& path, Range bytes) {
  constexpr int64_t part = int64_t{1} << 20;
  const auto file = DiskFile::open(path);
  Digest digest;
  std::string buffer;
  for (int64_t at = bytes.begin; at < bytes.end; at += part) {
    buffer.resize(std::min(part, bytes.end - at));
    file.read(buffer.data(), std::ssize(buffer), at);
    digest.add(buffer);
  }
  return digest;
}

}  // namespace

uint64_t content_sum(const void* values, int64_t elements, int64_t element_bytes, int64_t first) {
  switch (element_bytes) {
    case 1: return weighted_sum<uint8_t>(values, elements, first);
    case 4: return weighted_sum<uint32_t>(values, elements, first);
    // As two words each: flips of the highest bit of two words of 64 bits would cancel.
    default: return weighted_sum<uint32_t>(values, 2 * elements, 2 * first);
  }
}

void Digest::add(std::string_view bytes) {
  for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * fnv_prime;
  // So that no two lists of texts run into one.
  value_ = (value_ ^ bytes.size()) * fnv_prime;
}

std::string Digest::text_of(uint64_t value) { return str("{:016x}", value); }

std::string file_digest(const std::string& path, const Grid& grid) {
  int64_t bytes = 0;
  agree(grid, [&] {
    if (grid.rank() == 0) bytes = DiskFile::open(path).size();
  });
  grid.broadcast(&bytes, sizeof bytes, 0);
  const int64_t pieces = std::max<int64_t>(1, (bytes + digest_piece - 1) / digest_piece);
  std::vector<uint64_t> values(pieces);
  agree(grid, [&] {
    const Range mine = grid.mine(pieces);
    for (int64_t piece = mine.begin; piece < mine.end; ++piece) {
      const int64_t begin = piece * digest_piece;
      values[piece] = piece_digest(path, {begin, std::min(begin + digest_piece, bytes)}).value();
      grid.activity().beat();
    }
  });
  grid.sum(values);
  if (pieces == 1) return Digest::text_of(values[0]);
  Digest digest;
  for (const uint64_t value : values) digest.add(Digest::text_of(value));
  return digest.text();
}

}  // namespace longstraw
