// A prompt: some number of token ids, in memory or in a file until they are asked for.
#pragma once

#include "longstraw/core/split.hpp"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <vector>

namespace longstraw {

/// Reads tokens from `begin` on of all prompts of a file, which lie there one after the other.
using ReadTokens = std::function<void(int64_t begin, std::span<int32_t> to)>;

/// Tokens that stay in a file cost no memory but what `ids` returns.
class Prompt {
 public:
  Prompt() = default;
  Prompt(std::vector<int32_t> ids);
  Prompt(std::initializer_list<int32_t> ids);
  /// Tokens `place` of a file, to be read by `read`.
  Prompt(Range place, ReadTokens read);

  int64_t size() const { return place_.size(); }
  /// Tokens at `positions` of the prompt.
  std::vector<int32_t> ids(Range positions) const;
  int32_t last() const;

  /// All tokens of a prompt in memory; nothing of one in a file.
  std::span<const int32_t> held() const { return ids_; }
  Range place() const { return place_; }

 private:
  std::vector<int32_t> ids_;
  Range place_;  // in the file; in memory: [0, size)
  ReadTokens read_;
};

/// The longest part of a prompt that is in memory at once where every token must be looked at.
constexpr int64_t prompt_piece = int64_t{1} << 16;

}  // namespace longstraw
