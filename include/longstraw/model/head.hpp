// The language-model head: final norm, logits a few tokens at a time, log-probabilities and entropy
// of the target tokens, and their backward pass. Token-wise, on this rank's slice.
#pragma once

#include "longstraw/model/context.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace longstraw {

/// Per token of this rank's slice, at the objective's temperature.
struct TokenScores {
  std::vector<double> logprobs;
  std::vector<double> entropies;
};

class Head {
 public:
  /// Adds the final norm, and the head's matrix unless it is the embedding's (`tied`).
  Head(const ModelConfig& config, ParameterList& list, const std::string& prefix,
       ParameterId embedding);

  ParameterId norm() const { return norm_; }

  /// Log-probabilities of `targets` from the residual stream x [tokens, hidden].
  TokenScores score(const Context& context, const Tensor& x, std::span<const int32_t> targets,
                    double temperature) const;

  /// Gives the derivative of the loss with respect to the log-probability of token `index`.
  using LossGradient = std::function<double(int64_t index, double logprob)>;
  /// As `score`; also writes dx [tokens, hidden] and adds to the parameters' gradients.
  TokenScores replay(const Context& context, const Tensor& dx, const Tensor& x,
                     std::span<const int32_t> targets, double temperature,
                     const LossGradient& gradient) const;

 private:
  struct Chunk;
  TokenScores run(const Context& context, const Tensor& x, std::span<const int32_t> targets,
                  double temperature, const std::function<void(const Chunk&)>& each) const;

  int64_t hidden_, vocab_;
  double norm_eps_;
  ParameterId norm_, weight_;
};

}  // namespace longstraw
