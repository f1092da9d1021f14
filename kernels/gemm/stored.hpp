// Matrix products of float32 some of whose matrices are stored in bfloat16. Internal to the
// kernels.
#pragma once

#include "longstraw/kernels/gemm.hpp"

namespace longstraw {

/// A matrix as a product sees it: its extents are those after the transposition.
struct Operand {
  Tensor tensor;
  Transpose transpose;
  int64_t rows() const { return tensor.extent(transpose == Transpose::yes ? 1 : 0); }
  int64_t columns() const { return tensor.extent(transpose == Transpose::yes ? 0 : 1); }
};

/// C = alpha A B + beta C, each of float32 or bfloat16, summed in float32: operands are widened
/// panel by panel on the stack (1.4 MiB, with a panel of C 2.4 MiB), C is rounded once at the end.
/// Of bfloat16, C takes beta = 0 only. Extents at least 1.
void multiply_stored(const Tensor& c, const Operand& a, const Operand& b, float alpha, float beta);

}  // namespace longstraw
