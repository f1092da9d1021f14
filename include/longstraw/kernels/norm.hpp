// Root-mean-square norms over rows, the gated form of the delta rule's output, and the L2 norm.
// Formulas: xhat = x / sqrt(mean(x^2) + eps). Where x is float32, the y of a norm may be bfloat16
// (rounded once; it is not x then), and so may w in both directions; the rest is of the type of x.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

namespace longstraw {

/// What multiplies xhat: w (plain), or 1 + w (zero-centred weights).
enum class NormWeight { plain, zero_centred };

/// y = xhat * w'; x, y [rows, dim] (row strides allowed), w [dim]. y may be x.
void rms_norm(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& w, NormWeight kind,
              double eps);
/// dx = r (h - xhat mean(h xhat)), h = dy w'; dw += sum over rows of dy xhat. dx is written, or
/// added to when `accumulate_dx`. dx may be dy.
void rms_norm_backward(Stream& stream, const Tensor& dx, const Tensor& dw, const Tensor& dy,
                       const Tensor& x, const Tensor& w, NormWeight kind, double eps,
                       bool accumulate_dx = false);

/// y = xhat * w * silu(z); y, x, z [rows, dim] (row strides allowed), w [dim] (plain). y may be x.
void gated_rms_norm(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& z,
                    const Tensor& w, double eps);
/// dx = r (h - xhat mean(h xhat)), h = dy silu(z) w; dz = dy w xhat silu'(z); dw += sum over rows
/// of dy silu(z) xhat. dx may be dy, and dz may be z.
void gated_rms_norm_backward(Stream& stream, const Tensor& dx, const Tensor& dz, const Tensor& dw,
                             const Tensor& dy, const Tensor& x, const Tensor& z, const Tensor& w,
                             double eps);

/// y = scale x / sqrt(sum(x^2) + eps); x, y [rows, dim], row strides allowed. y may be x.
void l2_norm(Stream& stream, const Tensor& y, const Tensor& x, double scale, double eps);
/// dx = scale r (dy - n sum(dy n)), r = 1 / sqrt(sum(x^2) + eps), n = r x: from dy and the *input*
/// x. dx may be dy.
void l2_norm_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& x,
                      double scale, double eps);

}  // namespace longstraw
