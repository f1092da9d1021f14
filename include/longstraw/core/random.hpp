// Random numbers by counter: a value depends on what it is for, not on what was drawn before.
#pragma once

#include <cstdint>

namespace longstraw {

/// 64 random bits of number `index` in the sequence `sequence` of `seed`: SplitMix64 of a counter.
constexpr uint64_t random_bits(uint64_t seed, uint64_t sequence, uint64_t index) {
  uint64_t z =
      seed * 0x9e3779b97f4a7c15 + sequence * 0xbf58476d1ce4e5b9 + index * 0x94d049bb133111eb;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// The same as a number in (0, 1).
constexpr double random_unit(uint64_t seed, uint64_t sequence, uint64_t index) {
  return (static_cast<double>(random_bits(seed, sequence, index) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace longstraw
