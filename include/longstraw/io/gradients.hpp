// The gradient of one step as a file to look at or to compare: gradient-STEP.h5.
#pragma once

#include "longstraw/io/checkpoint.hpp"

namespace longstraw {

struct GradientFile {
  std::string path;
  std::string mode;  // attribute `gradient_mode`: exact or frozen
  int64_t step = 0;  // attribute `step`
};

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

/// Writes one dataset a parameter, named as in Hugging Face, with the parameter's extents, of type
/// `type`; `provide` must have values for each. Written as path.tmp and renamed. Collective over
/// `grid`; rank 0 writes.
void write_gradients(const GradientFile& file, const std::vector<NamedShape>& parameters,
                     const Grid& grid, Ledger& ledger, DType type, const Provide& provide);

}  // namespace longstraw
