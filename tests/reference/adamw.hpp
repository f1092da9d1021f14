// The loop of torch.optim.AdamW (not fused, not amsgrad), line by line.
#pragma once

#include "longstraw/kernels/adamw.hpp"

#include <cmath>
#include <vector>

namespace longstraw::reference {

inline void adamw(std::vector<double>& weight, std::vector<double>& exp_avg,
                  std::vector<double>& exp_avg_sq, const std::vector<double>& gradient,
                  const AdamW& s) {
  for (size_t i = 0; i < weight.size(); ++i) {
    const double grad = gradient[i] * s.grad_scale;
    weight[i] *= 1 - s.lr * s.weight_decay;
    exp_avg[i] += (grad - exp_avg[i]) * (1 - s.beta1);
    exp_avg_sq[i] = exp_avg_sq[i] * s.beta2 + (1 - s.beta2) * grad * grad;
    const double bias_correction1 = 1 - std::pow(s.beta1, static_cast<double>(s.step));
    const double bias_correction2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
    const double step_size = s.lr / bias_correction1;
    const double denom = std::sqrt(exp_avg_sq[i]) / std::sqrt(bias_correction2) + s.eps;
    weight[i] -= step_size * exp_avg[i] / denom;
  }
}

}  // namespace longstraw::reference
