// A model as its checkpoint describes it: layers and head, and the list of their parameters.
#pragma once

#include "longstraw/model/decoder.hpp"
#include "longstraw/model/head.hpp"

namespace longstraw {

struct Model {
  /// `prefix` is what the checkpoint's names of the text model begin with ("model.").
  Model(ModelConfig config_, const std::string& prefix)
      : config(std::move(config_)),
        decoder(config, parameters, prefix),
        head(config, parameters, prefix, decoder.embedding()) {}

  ModelConfig config;
  ParameterList parameters;
  Decoder decoder;
  Head head;
};

}  // namespace longstraw
