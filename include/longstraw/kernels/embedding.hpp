// Token embedding rows, and the log-probabilities of the language-model head.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

#include <cstdint>
#include <span>

namespace longstraw {

/// x[t] = table[ids[t]]; table [vocab, hidden], x [tokens, hidden]. The table of a float32 x may be
/// bfloat16.
void embed(Stream& stream, const Tensor& x, const Tensor& table, std::span<const int32_t> ids);
/// dtable[ids[t]] += dx[t], in the order of tokens.
void embed_backward(Stream& stream, const Tensor& dtable, const Tensor& dx,
                    std::span<const int32_t> ids);

/// For each row of logits [tokens, vocab] under softmax(logits / temperature): log-probability of
/// its target, entropy, and log of the normaliser (what backward needs). Outputs are double, one a
/// token.
void log_prob(Stream& stream, std::span<double> logprob, std::span<double> entropy,
              std::span<double> normaliser, const Tensor& logits, std::span<const int32_t> targets,
              double temperature);
/// logits[t] <- dlogprob[t] (onehot(target) - softmax(logits / temperature)) / temperature, in
/// place.
void log_prob_backward(Stream& stream, const Tensor& logits, std::span<const double> dlogprob,
                       std::span<const double> normaliser, std::span<const int32_t> targets,
                       double temperature);

}  // namespace longstraw
