// A model's parameters and a checkpoint's tensors held against each other, and moved between them.
#pragma once

#include "longstraw/io/checkpoint.hpp"
#include "longstraw/model/model.hpp"

#include <string>
#include <vector>

namespace longstraw {

/// The model that the checkpoint's config.json describes, after checking that the checkpoint has
/// every parameter in the shape that the config calls for. Allocates nothing.
Model open_model(const Checkpoint& checkpoint);

/// Tensors of the checkpoint that are no parameter of the model (vision, multi-token prediction).
std::vector<std::string> ignored_tensors(const Checkpoint& checkpoint, const Model& model);

/// Reads every parameter on every rank. Collective over `grid`.
void load_weights(const Checkpoint& checkpoint, const Parameters& parameters, const Grid& grid);

struct TrainedWeights {
  const Model& model;
  const Parameters& parameters;
  StoredAs stored_as = StoredAs::source;
};
/// Writes weights as a checkpoint like `source` to folder `out`. Collective over `grid`.
void save_weights(const std::string& out, const Checkpoint& source, const TrainedWeights& weights,
                  const Grid& grid, Ledger& ledger);

/// How weights came about.
struct WeightsOrigin {
  std::string folder;  ///< that the weights are in
  std::string checkpoint, rollouts, gradient_mode, precision;
  int64_t steps = 0;  ///< of the run, before they were written
  int64_t updates = 0;
};
/// Puts it beside them, in a file of JSON. Collective over `grid`.
void write_origin(const WeightsOrigin& origin, const Grid& grid);

}  // namespace longstraw
