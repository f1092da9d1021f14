// The feed-forward part of a layer: down(silu(gate(x)) * up(x)). Token-wise, on this rank's slice.
#pragma once

#include "longstraw/model/context.hpp"

#include <string>

namespace longstraw {

class Mlp {
 public:
  struct Record {
    Field x;         // [tokens, hidden]
    Field gate, up;  // [tokens, intermediate]
  };

  /// Adds its parameters to `list`, under `prefix` ("...layers.N.mlp.").
  Mlp(const ModelConfig& config, ParameterList& list, const std::string& prefix);

  /// Writes y [tokens, hidden] from x, the normed residual.
  Record forward(const Context& context, const Tensor& y, Field x) const;
  /// Writes dx from dy; adds to the parameters' gradients. Uses up the record.
  void backward(const Context& context, const Tensor& dx, const Tensor& dy, Record record) const;

 private:
  int64_t intermediate_;
  ParameterId gate_, up_, down_;
};

}  // namespace longstraw
