#include "longstraw/model/mlp.hpp"

#include "longstraw/kernels/activation.hpp"
#include "longstraw/kernels/gemm.hpp"

namespace longstraw {

Mlp::Mlp(const ModelConfig& config, ParameterList& list, const std::string& prefix)
    : intermediate_(config.intermediate) {
  gate_ = list.add(prefix + "gate_proj.weight", {intermediate_, config.hidden});
  up_ = list.add(prefix + "up_proj.weight", {intermediate_, config.hidden});
  down_ = list.add(prefix + "down_proj.weight", {config.hidden, intermediate_});
}

Mlp::Record Mlp::forward(const Context& context, const Tensor& y, Field x) const {
  const Parameters& p = context.parameters;
  const int64_t tokens = y.extent(0);
  Record record{std::move(x), context.activation({tokens, intermediate_}),
                context.activation({tokens, intermediate_})};
  linear(context.stream, record.gate, record.x, p.weight(gate_));
  linear(context.stream, record.up, record.x, p.weight(up_));
  const Field act = context.scratch({tokens, intermediate_});
  swiglu(context.stream, act, record.gate, record.up);
  linear(context.stream, y, act, p.weight(down_));
  return record;
}

void Mlp::backward(const Context& context, const Tensor& dx, const Tensor& dy,
                   Record record) const {
  const Parameters& p = context.parameters;
  const Field act = context.scratch({dy.extent(0), intermediate_});
  const Field dact = context.scratch({dy.extent(0), intermediate_});
  swiglu(context.stream, act, record.gate, record.up);
  linear_backward(context.stream, dact, p.gradient(down_), dy, act, p.weight(down_));
  swiglu_backward(context.stream, record.gate, record.up, dact, record.gate, record.up);
  linear_backward(context.stream, dx, p.gradient(gate_), record.gate, record.x, p.weight(gate_));
  linear_backward(context.stream, dx, p.gradient(up_), record.up, record.x, p.weight(up_), true);
}

}  // namespace longstraw
