#include "longstraw/model/head.hpp"

#include "longstraw/kernels/embedding.hpp"
#include "longstraw/kernels/gemm.hpp"
#include "longstraw/kernels/norm.hpp"

#include <algorithm>

namespace longstraw {
namespace {

// Logits held at a time: 16 Mi elements, at least one token's.
constexpr int64_t logits_at_once = int64_t{1} << 24;

}  // namespace

struct Head::Chunk {
  Range tokens;
  Tensor x;       // residual stream [tokens, hidden]
  Tensor normed;  // [tokens, hidden]
  Tensor logits;  // [tokens, vocab]
  std::span<const int32_t> targets;
  std::span<const double> logprobs;
  std::span<const double> normalisers;
};

Head::Head(const ModelConfig& config, ParameterList& list, const std::string& prefix,
           ParameterId embedding)
    : hidden_(config.hidden), vocab_(config.vocab), norm_eps_(config.norm_eps) {
  norm_ = list.add(prefix + "norm.weight", {hidden_});
  weight_ = config.tied_embeddings ? embedding : list.add("lm_head.weight", {vocab_, hidden_});
}

TokenScores Head::run(const Context& context, const Tensor& x, std::span<const int32_t> targets,
                      double temperature, const std::function<void(const Chunk&)>& each) const {
  const Parameters& p = context.parameters;
  const int64_t tokens = x.extent(0);
  LONGSTRAW_ASSERT(std::ssize(targets) == tokens);
  TokenScores scores{std::vector<double>(tokens), std::vector<double>(tokens)};
  const int64_t most = std::min(tokens, std::max<int64_t>(1, logits_at_once / vocab_));
  const Field normed = context.scratch({most, hidden_}), logits = context.scratch({most, vocab_});
  std::vector<double> normalisers(most);
  for (int64_t begin = 0; begin < tokens; begin += most) {
    const Range part{begin, std::min(begin + most, tokens)};
    const Chunk chunk{.tokens = part,
                      .x = x.rows(part.begin, part.end),
                      .normed = normed.tensor().rows(0, part.size()),
                      .logits = logits.tensor().rows(0, part.size()),
                      .targets = targets.subspan(begin, part.size()),
                      .logprobs = std::span(scores.logprobs).subspan(begin, part.size()),
                      .normalisers = std::span(normalisers).first(part.size())};
    rms_norm(context.stream, chunk.normed, chunk.x, p.weight_vector(norm_),
             NormWeight::zero_centred, norm_eps_);
    linear(context.stream, chunk.logits, chunk.normed, p.weight(weight_));
    log_prob(context.stream, std::span(scores.logprobs).subspan(begin, part.size()),
             std::span(scores.entropies).subspan(begin, part.size()),
             std::span(normalisers).first(part.size()), chunk.logits, chunk.targets, temperature);
    each(chunk);
  }
  return scores;
}

TokenScores Head::score(const Context& context, const Tensor& x, std::span<const int32_t> targets,
                        double temperature) const {
  return run(context, x, targets, temperature, [](const Chunk&) {});
}

TokenScores Head::replay(const Context& context, const Tensor& dx, const Tensor& x,
                         std::span<const int32_t> targets, double temperature,
                         const LossGradient& gradient) const {
  const Parameters& p = context.parameters;
  return run(context, x, targets, temperature, [&](const Chunk& chunk) {
    std::vector<double> dlogprobs(chunk.tokens.size());
    for (int64_t i = 0; i < chunk.tokens.size(); ++i)
      dlogprobs[i] = gradient(chunk.tokens.begin + i, chunk.logprobs[i]);
    log_prob_backward(context.stream, chunk.logits, dlogprobs, chunk.normalisers, chunk.targets,
                      temperature);
    const Tensor dpart = dx.rows(chunk.tokens.begin, chunk.tokens.end);
    linear_backward(context.stream, dpart, p.gradient(weight_), chunk.logits, chunk.normed,
                    p.weight(weight_));
    rms_norm_backward(context.stream, dpart, p.gradient_vector(norm_), dpart, chunk.x,
                      p.weight_vector(norm_), NormWeight::zero_centred, norm_eps_);
  });
}

}  // namespace longstraw
