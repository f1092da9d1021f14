// The gradient of one step as a file to look at or to compare: gradient-STEP.h5.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/core/ledger.hpp"
#include "longstraw/core/tensor.hpp"

#include <functional>
#include <string>
#include <vector>

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

/// Fills `values` with elements [begin, end) (flat, row-major) of the parameter `name`. Called on
/// all ranks with the same arguments in the same order, so it may communicate; what counts is what
/// it gives on rank 0.
using Provide = std::function<void(const std::string& name, Range elements, const Tensor& values)>;

/// Writes one dataset a parameter, named as in Hugging Face, with the parameter's extents, of type
/// `type`. Written as path.tmp and renamed. Collective over `grid`; rank 0 writes.
void write_gradients(const GradientFile& file, const std::vector<NamedShape>& parameters,
                     const Grid& grid, Ledger& ledger, DType type, const Provide& provide);

/// What the gradient file `path` says of itself, and the type it is stored in. Refuses a file that
/// does not hold exactly `parameters`. Collective over `grid`; rank 0 reads.
struct StoredGradient {
  GradientFile file;
  DType type = DType::float32;
};
StoredGradient open_gradients(const std::string& path, const std::vector<NamedShape>& parameters,
                              const Grid& grid);

/// Takes elements [begin, end) (flat, row-major) of the parameter `name`, in double.
using Take = std::function<void(const std::string& name, Range elements, const Tensor& values)>;

/// Gives the gradient file's values to `take` on every rank, in parts: parameters in their order,
/// elements ascending. Collective over `grid`, and so may `take` be; rank 0 reads.
void read_gradients(const std::string& path, const std::vector<NamedShape>& parameters,
                    const Grid& grid, Ledger& ledger, const Take& take);

}  // namespace longstraw
