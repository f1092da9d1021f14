// The gradient of a step: the ranks' own gradients summed, each rank holding the sum for its part
// of the flat parameters.
#pragma once

#include "longstraw/model/context.hpp"

namespace longstraw {

class ReducedGradient {
 public:
  /// Holds nothing yet.
  ReducedGradient() = default;
  /// Sums the ranks' gradients once, in the order of ranks. Every contribution was made on one rank
  /// only, so that this is the whole gradient. Collective over the grid.
  explicit ReducedGradient(const Context& context);

  bool held() const { return values_.allocated(); }
  /// The rank's part of the flat parameters, and its values.
  Range mine() const { return mine_; }
  const Tensor& values() const { return values_; }
  /// Not finite if an element is not. Collective over `grid`.
  double norm(const Grid& grid, Stream& stream) const;
  /// Elements [range) of the gradient, flat, on every rank. Collective over `grid`.
  void gather(const Grid& grid, const Tensor& to, Range range) const;

 private:
  int64_t size_ = 0;
  Range mine_;
  Field values_;
};

}  // namespace longstraw
