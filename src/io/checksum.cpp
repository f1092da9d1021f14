#include "longstraw/io/checksum.hpp"

#include "longstraw/core/check.hpp"
#include "longstraw/io/file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

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

std::string Digest::text() const { return str("{:016x}", value_); }

std::string file_digest(const std::string& path) {
  constexpr int64_t part = int64_t{1} << 20;
  const auto file = DiskFile::open(path);
  const int64_t bytes = file.size();
  Digest digest;
  std::string buffer;
  for (int64_t at = 0; at < bytes; at += part) {
    buffer.resize(std::min(part, bytes - at));
    file.read(buffer.data(), std::ssize(buffer), at);
    digest.add(buffer);
  }
  return digest.text();
}

}  // namespace longstraw
