// AdamW with its state cut over the ranks: each rank clips and updates its own part of the flat
// parameters once, and all ranks gather the result.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/deck/deck.hpp"
#include "longstraw/sim/reduced_gradient.hpp"

namespace longstraw {

enum class LearningRateSchedule { constant, linear, cosine };
enum class OnNonfinite { stop, skip };

struct OptimizerSettings {
  double lr = 1e-6;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.01;
  double max_grad_norm = 1.0;  ///< 0: no clipping
  LearningRateSchedule schedule = LearningRateSchedule::constant;
  int64_t warmup_steps = 0;
  OnNonfinite on_nonfinite = OnNonfinite::stop;
};

/// Reads section [optimizer].
OptimizerSettings read_optimizer(Deck& deck);

/// Rate of step `step` (from 0) of `steps`: rises linearly over the warm-up, to be `lr` at its last
/// step; then constant, or to zero at step `steps` along a line or half a cosine.
double learning_rate(const OptimizerSettings& settings, int64_t step, int64_t steps);

class Optimizer {
 public:
  Optimizer(Ledger& ledger, const Grid& grid, const Parameters& parameters,
            const OptimizerSettings& settings);

  /// One AdamW step with `gradient`, scaled by max_grad_norm / (norm + 1e-6) where that is below 1;
  /// then gives all ranks all weights. Collective over the grid.
  void update(Stream& stream, const Parameters& parameters, const ReducedGradient& gradient,
              double norm, double lr);

  int64_t updates() const { return updates_; }
  /// Lists the moments, one array a parameter, and the number of updates, which is one a step or
  /// none; `steps` are done.
  void fields(DumpFields& fields, const ParameterList& list, int64_t steps);
  const Tensor& first_moment() const { return m_; }
  const Tensor& second_moment() const { return v_; }

 private:
  const Grid& grid_;
  OptimizerSettings settings_;
  int64_t size_;
  Range mine_;  // of the flat parameters
  Field m_, v_;
  int64_t updates_ = 0;
};

}  // namespace longstraw
