// The layers of a model, as two routines: `forward(block, state)` and `backward(block, state,
// gradient)`. A prompt is the blocks before the boundary, a branch those after it.
#pragma once

#include "longstraw/model/mixer.hpp"
#include "longstraw/model/mlp.hpp"

#include <memory>
#include <string>
#include <vector>

namespace longstraw {

/// What the backward pass of one block needs of its forward pass, by layer.
struct BlockRecord {
  struct Layer {
    Field before_mixer;  // residual stream entering the layer [tokens, hidden]
    Field before_mlp;    // and after the mixer
    std::unique_ptr<MixerRecord> mixer;
    Mlp::Record mlp;
  };
  std::vector<Layer> layers;
};

class Decoder {
 public:
  /// Adds all parameters but those of the head to `list`; `prefix` is the checkpoint's ("model.").
  Decoder(const ModelConfig& config, ParameterList& list, const std::string& prefix);

  /// Shape of the retained state on this rank, by layer.
  std::vector<StateShape> state_shapes(const Grid& grid) const;
  ParameterId embedding() const { return embedding_; }

  /// Runs a block from its token ids: returns the residual stream after the last layer
  /// [slice tokens, hidden] and advances the state. With a record, keeps what `backward` needs.
  /// Collective over the grid.
  Field forward(const Pass& pass, BlockRecord* record) const;
  /// From the gradient dx of what `forward` returned: adds to the gradients of parameters and
  /// pages, and takes the gradient of the carried states from the block's end to its start. Uses up
  /// the record. Returns the gradient of the embedded tokens. Collective over the grid.
  Field backward(const Pass& pass, BlockRecord record, Field dx) const;

 private:
  struct Layer {
    ParameterId input_norm, post_norm;
    std::unique_ptr<Mixer> mixer;
    Mlp mlp;
  };

  void forward_layer(const Pass& pass, const Layer& layer, Field& x,
                     BlockRecord::Layer* record) const;
  void backward_layer(const Pass& pass, const Layer& layer, BlockRecord::Layer record,
                      const Tensor& dx) const;

  int64_t hidden_;
  double norm_eps_;
  ParameterId embedding_;
  std::vector<Layer> layers_;
};

}  // namespace longstraw
