// Depthwise causal convolution with SiLU, as before the gated delta rule.
#pragma once

#include "longstraw/core/stream.hpp"
#include "longstraw/core/tensor.hpp"

namespace longstraw {

/// y[t, c] = silu(sum_j w[c, j] mext[t + j, c]) with mext = [tail; m]; m, y [tokens, channels],
/// tail [taps - 1, channels] (the inputs before m), w [channels, taps] of 2 to 4 taps. Row strides
/// allowed on m, y.
void causal_conv(Stream& stream, const Tensor& y, const Tensor& m, const Tensor& tail,
                 const Tensor& w);
/// Writes dm [tokens, channels] and dtail [taps - 1, channels]; dw [channels, taps] is added to.
/// `dtail_next` is the gradient of the last taps - 1 rows of mext as a later block's tail; it is
/// added to those rows' gradient (an empty tensor: none). With fewer than taps - 1 tokens it
/// reaches into dtail. dtail may not be dtail_next.
void causal_conv_backward(Stream& stream, const Tensor& dm, const Tensor& dtail, const Tensor& dw,
                          const Tensor& dy, const Tensor& dtail_next, const Tensor& m,
                          const Tensor& tail, const Tensor& w);
/// tail = last taps - 1 rows of [tail; m], in place.
void advance_tail(Stream& stream, const Tensor& tail, const Tensor& m);

}  // namespace longstraw
