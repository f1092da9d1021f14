// Elementwise gates. Where inputs are float32, outputs may be bfloat16, each by itself: rounded
// once, and in memory of their own. `add` is of one type.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

namespace longstraw {

/// y = silu(g) * u, all [rows, dim], row strides allowed.
void swiglu(Stream& stream, const Tensor& y, const Tensor& g, const Tensor& u);
/// dg = dy u silu'(g), du = dy silu(g). dg may be g and du may be u (in place).
void swiglu_backward(Stream& stream, const Tensor& dg, const Tensor& du, const Tensor& dy,
                     const Tensor& g, const Tensor& u);

/// y = o * sigmoid(t), all [rows, dim], row strides allowed; y may be o.
void sigmoid_gate(Stream& stream, const Tensor& y, const Tensor& o, const Tensor& t);
/// do_ = dy sigmoid(t), dt = dy o sigmoid(t) (1 - sigmoid(t)). do_ may be dy.
void sigmoid_gate_backward(Stream& stream, const Tensor& do_, const Tensor& dt, const Tensor& dy,
                           const Tensor& o, const Tensor& t);

/// y += x, any shape, same size; both contiguous or equal extents with row strides.
void add(Stream& stream, const Tensor& y, const Tensor& x);

}  // namespace longstraw
