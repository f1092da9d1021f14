// Log-probabilities of a softmax, slow and obvious.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace longstraw::reference {

struct LogProb {
  double logprob = 0;
  double entropy = 0;
  double normaliser = 0;
};

/// Of `target` under softmax(logits / temperature).
inline LogProb log_prob(const std::vector<double>& logits, int target, double temperature) {
  const double top = *std::max_element(logits.begin(), logits.end()) / temperature;
  double sum = 0;
  for (const double x : logits) sum += std::exp(x / temperature - top);
  LogProb result;
  result.normaliser = top + std::log(sum);
  result.logprob = logits[target] / temperature - result.normaliser;
  for (const double x : logits) {
    const double log_p = x / temperature - result.normaliser;
    if (std::isfinite(log_p)) result.entropy -= std::exp(log_p) * log_p;
  }
  return result;
}

}  // namespace longstraw::reference
