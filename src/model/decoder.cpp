#include "longstraw/model/decoder.hpp"

#include "longstraw/kernels/activation.hpp"
#include "longstraw/kernels/embedding.hpp"
#include "longstraw/kernels/norm.hpp"
#include "longstraw/model/attention_mixer.hpp"
#include "longstraw/model/delta_mixer.hpp"

namespace longstraw {
namespace {

std::unique_ptr<Mixer> make_mixer(const ModelConfig& config, int layer, ParameterList& list,
                                  const std::string& prefix) {
  if (config.layers[layer] == LayerKind::full_attention)
    return std::make_unique<AttentionMixer>(config, layer, list, prefix + "self_attn.");
  return std::make_unique<DeltaMixer>(config, layer, list, prefix + "linear_attn.");
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, ParameterList& list, const std::string& prefix)
    : hidden_(config.hidden),
      norm_eps_(config.norm_eps),
      embedding_(list.add(prefix + "embed_tokens.weight", {config.vocab, config.hidden})) {
  for (int l = 0; l < static_cast<int>(config.layers.size()); ++l) {
    const std::string at = prefix + "layers." + std::to_string(l) + ".";
    const auto input_norm = list.add(at + "input_layernorm.weight", {hidden_});
    auto mixer = make_mixer(config, l, list, at);
    const auto post_norm = list.add(at + "post_attention_layernorm.weight", {hidden_});
    layers_.push_back({input_norm, post_norm, std::move(mixer), Mlp(config, list, at + "mlp.")});
  }
}

std::vector<StateShape> Decoder::state_shapes(const Grid& grid) const {
  std::vector<StateShape> shapes;
  for (const Layer& layer : layers_) shapes.push_back(layer.mixer->state_shape(grid));
  return shapes;
}

Field Decoder::forward(const Pass& outer, BlockRecord* record) const {
  const Pass pass{outer.context.with(record != nullptr ? Recording::on : Recording::off),
                  outer.block, outer.state, nullptr};
  const Context& ctx = pass.context;
  pass.state.enter(pass.block);
  Field x = ctx.activation({pass.block.mine.size(), hidden_});
  embed(ctx.stream, x, ctx.parameters.weight(embedding_), pass.block.ids);
  for (const Layer& layer : layers_)
    forward_layer(pass, layer, x, record ? &record->layers.emplace_back() : nullptr);
  return x;
}

void Decoder::forward_layer(const Pass& pass, const Layer& layer, Field& x,
                            BlockRecord::Layer* record) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const int64_t tokens = pass.block.mine.size();
  // One residual step: normed input into `part`, whose output is added to a new (recorded) or to
  // the same residual stream.
  const auto step = [&](ParameterId norm, Field* kept, auto&& part) {
    Field normed = ctx.activation({tokens, hidden_});
    rms_norm(ctx.stream, normed, x, p.weight_vector(norm), NormWeight::zero_centred, norm_eps_);
    Field y = ctx.activation({tokens, hidden_});
    part(y, std::move(normed));
    add(ctx.stream, y, x);
    if (kept != nullptr) *kept = std::move(x);
    x = std::move(y);
  };
  step(layer.input_norm, record ? &record->before_mixer : nullptr, [&](Field& y, Field normed) {
    auto kept = layer.mixer->forward(pass, y, std::move(normed));
    if (record) record->mixer = std::move(kept);
  });
  step(layer.post_norm, record ? &record->before_mlp : nullptr, [&](Field& y, Field normed) {
    auto kept = layer.mlp.forward(ctx, y, std::move(normed));
    if (record) record->mlp = std::move(kept);
  });
}

Field Decoder::backward(const Pass& outer, BlockRecord record, Field dx) const {
  const Pass pass{outer.context.with(Recording::off), outer.block, outer.state, outer.gradient};
  for (size_t l = layers_.size(); l-- > 0;) {
    backward_layer(pass, layers_[l], std::move(record.layers[l]), dx);
    record.layers.pop_back();
  }
  const Parameters& p = pass.context.parameters;
  embed_backward(pass.context.stream, p.gradient(embedding_), dx, pass.block.ids);
  return dx;
}

void Decoder::backward_layer(const Pass& pass, const Layer& layer, BlockRecord::Layer record,
                             const Tensor& dx) const {
  const Context& ctx = pass.context;
  const Parameters& p = ctx.parameters;
  const Field dnormed = ctx.scratch({pass.block.mine.size(), hidden_});
  layer.mlp.backward(ctx, dnormed, dx, std::move(record.mlp));
  rms_norm_backward(ctx.stream, dx, p.gradient_vector(layer.post_norm), dnormed, record.before_mlp,
                    p.weight_vector(layer.post_norm), NormWeight::zero_centred, norm_eps_, true);
  layer.mixer->backward(pass, dnormed, dx, *record.mixer);
  rms_norm_backward(ctx.stream, dx, p.gradient_vector(layer.input_norm), dnormed,
                    record.before_mixer, p.weight_vector(layer.input_norm),
                    NormWeight::zero_centred, norm_eps_, true);
}

}  // namespace longstraw
