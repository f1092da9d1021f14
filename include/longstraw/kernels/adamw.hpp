// The optimizer's elementwise update, and sums over gradients.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

#include <cstdint>

namespace longstraw {

struct AdamW {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;       ///< number of this update, from 1, for the bias corrections
  double grad_scale = 1;  ///< multiplies the gradient first (clipping)
};

/// Decoupled weight decay: w -= lr weight_decay w; m = beta1 m + (1 - beta1) g;
/// v = beta2 v + (1 - beta2) g^2; w -= lr mhat / (sqrt(vhat) + eps), as torch.optim.AdamW.
/// All [n] of one type; arithmetic in double per element.
void adamw(Stream& stream, const Tensor& weight, const Tensor& m, const Tensor& v,
           const Tensor& gradient, const AdamW& settings);
/// Sum of squares of all elements, accumulated in double; not finite if an element is not.
double sum_of_squares(Stream& stream, const Tensor& x);

}  // namespace longstraw
