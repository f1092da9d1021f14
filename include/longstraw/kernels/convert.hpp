// Between the types that elements are stored in.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

namespace longstraw {

/// to = from, one of them float32 and the other bfloat16: widened exactly, or rounded to nearest
/// even. Any shape, same size; both contiguous or equal extents with row strides. They may not
/// overlap.
void convert(Stream& stream, const Tensor& to, const Tensor& from);

}  // namespace longstraw
