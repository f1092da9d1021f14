// The part of a layer in which tokens meet: attention or gated delta rule, behind one interface.
#pragma once

#include "longstraw/model/state.hpp"

#include <memory>

namespace longstraw {

/// One block on its way through the layers, forward or back. `gradient` is there on the way back.
struct Pass {
  Context context;
  const Block& block;
  SequenceState& state;
  StateGradient* gradient = nullptr;
};

/// What a mixer's backward pass needs of its forward pass.
struct MixerRecord {
  virtual ~MixerRecord() = default;
};

/// One layer's mixer. `forward` reads and advances the layer's state; `backward` finds the gradient
/// of the state after the block and leaves that of the state before it. Both are collective over
/// the grid; both serve prompt and branch, capture, replay and recomputation alike.
class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual StateShape state_shape(const Grid& grid) const = 0;

  /// Writes y [tokens, hidden] from x, the normed residual [tokens, hidden] of this rank's slice.
  /// The caller keeps the record, which holds x, until `backward`, or drops it.
  virtual std::unique_ptr<MixerRecord> forward(const Pass& pass, const Tensor& y,
                                               Field x) const = 0;

  /// Writes dx from dy; adds to the parameters' gradients.
  virtual void backward(const Pass& pass, const Tensor& dx, const Tensor& dy,
                        const MixerRecord& record) const = 0;
};

}  // namespace longstraw
