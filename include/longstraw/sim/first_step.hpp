// The first step of a deck at and near the checkpoint's weights: its gradients, and the derivative
// of its loss by differences. What `verify` is made of.
#pragma once

#include "longstraw/sim/reduced_gradient.hpp"
#include "longstraw/sim/report.hpp"
#include "longstraw/sim/run.hpp"

#include <string>
#include <vector>

namespace longstraw {

/// A figure and what it must stay below, with the reason.
struct Bound {
  double value = 0;
  double limit = 0;
  std::string reason;
  bool held() const { return value <= limit; }
};

/// The derivative of the loss along a direction of length 1, once by a gradient and once by the
/// losses at weights + h d and weights - h d.
struct DifferenceCheck {
  DType precision = DType::float64;
  std::string direction;
  double h = 0;
  double by_gradient = 0;
  double by_loss = 0;
  Bound error;         ///< relative to the larger of by_gradient and the typical |g| / sqrt(n)
  bool smooth = true;  ///< no token passes a clip between the two sides, so that the bound counts
  bool held() const { return !smooth || error.held(); }
};

/// Groups of the deck's first step.
std::vector<const Group*> first_groups(const Problem& problem);

class FirstStep {
 public:
  /// In precision `type`, whatever the deck says. Collective over `grid`.
  FirstStep(const Problem& problem, DType type, const Grid& grid, Ledger& ledger,
            Progress& progress);

  /// Throws where it is not finite. Collective over the grid.
  ReducedGradient gradient(GradientMode mode);
  /// Of the step of the last gradient.
  const StepSummary& summary() const { return summary_; }

  /// Differences of the loss against what `gradient` says of them, along the gradient itself and
  /// `directions` random directions of run.seed; none of either for 0. Old log-probabilities that
  /// the deck computes are those of the checkpoint's weights throughout. Collective over the grid.
  std::vector<DifferenceCheck> differences(const ReducedGradient& gradient, int64_t directions);

  /// How far weights and loss are moved for a difference: parts of the weights' norm, and of 1.
  struct Reach {
    double weights;
    double loss;
  };
  static Reach reach(DType type);

 private:
  StepSummary run(Stepper& stepper, const std::string& what);
  /// Change of the loss between two points, and whether the same tokens are clipped at both.
  struct Sides {
    double by_gradient = 0;
    double by_loss = 0;
    bool smooth = true;
  };
  Sides sides_of(Stepper& stepper, const ReducedGradient& gradient, const Tensor& base,
                 const Tensor& direction, double factor);
  DifferenceCheck along(Stepper& stepper, const ReducedGradient& gradient, const Tensor& base,
                        const Tensor& direction);

  const Problem& problem_;
  Stream stream_;
  Parameters parameters_;
  Context context_;
  std::vector<const Group*> groups_;
  Progress& progress_;
  StepSummary summary_;
};

/// Work of all that `verify` does, for progress. Allocates nothing.
double verify_work(const Problem& problem, int64_t directions, const Grid& grid);

}  // namespace longstraw
