// Matrix products: the one interface to the BLAS (CBLAS on the host).
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

namespace longstraw {

enum class Transpose { no, yes };

/// C = alpha op(A) op(B) + beta C for matrices of order 2 with row strides; op transposes where
/// asked. op(A) [m, k], op(B) [k, n], C [m, n], all of one type or, of float32, each that or
/// bfloat16: sums are float32 then, and a C of bfloat16 is rounded once at their end and takes
/// beta = 0 only. With beta = 0, C is not read. Extents of 0 are allowed (k = 0 scales C by beta).
void gemm(Stream& stream, const Tensor& c, const Tensor& a, Transpose transpose_a, const Tensor& b,
          Transpose transpose_b, double alpha = 1.0, double beta = 0.0);

/// Y = X W^T: x [tokens, in], w [out, in], y [tokens, out]; types as in `gemm`.
void linear(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& w);
/// Backward of `linear`: dx = dy W (added to dx when `accumulate_dx`), dw += dy^T x.
/// An empty (default) dx or dw is left out. Types as in `gemm`; dw is float32 where dy and x are
/// bfloat16, as is a dx that is added to.
void linear_backward(Stream& stream, const Tensor& dx, const Tensor& dw, const Tensor& dy,
                     const Tensor& x, const Tensor& w, bool accumulate_dx = false);

}  // namespace longstraw
