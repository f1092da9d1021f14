#include "longstraw/model/config_keys.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace longstraw {
namespace {

using Json = nlohmann::json;

// Keys of one meaning, and the values by which they change nothing; so does null for all.
struct Keys {
  const char* meaning;
  std::vector<Json> neutral;
  std::vector<const char*> names;
};

std::vector<Keys> keys_of_layers() {
  return {{"activation", {"silu"}, {"hidden_act", "hidden_activation", "activation_function"}},
          {"activation of the delta rule's gate", {"silu", "swish"}, {"output_gate_type"}},
          {"the family's attention has a gate", {true}, {"attn_output_gate"}},
          {"the family norms queries and keys", {true}, {"use_qk_norm", "qk_norm"}},
          {"dropout; steps here are deterministic",
           {0, false},
           {"attention_dropout",
            "attn_dropout",
            "attn_pdrop",
            "attention_probs_dropout_prob",
            "attention_dropout_prob",
            "residual_dropout",
            "resid_dropout",
            "resid_pdrop",
            "hidden_dropout",
            "hidden_dropout_prob",
            "embd_pdrop",
            "embed_dropout",
            "embd_dropout",
            "emb_dropout",
            "embedding_dropout",
            "embedding_dropout_prob",
            "activation_dropout",
            "mlp_dropout",
            "ffn_dropout",
            "ff_dropout",
            "dropout",
            "dropout_rate",
            "dropout_prob",
            "layerdrop",
            "layer_dropout",
            "drop_path_rate"}},
          {"bound on queries, keys and values", {0, false}, {"clip_qkv"}},
          {"attention to part of the tokens",
           {0, false},
           {"use_sliding_window", "sliding_window", "sliding_window_size", "sliding_window_pattern",
            "attention_chunk_size"}},
          {"attention to later tokens",
           {false},
           {"use_bidirectional_attention", "is_encoder_decoder", "add_cross_attention"}},
          {"attention to later tokens", {true}, {"is_causal"}},
          {"the family has no bias",
           {false},
           {"attention_bias", "attn_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias",
            "attention_qkv_bias", "attention_out_bias", "mlp_bias", "use_bias", "add_bias_linear",
            "lm_head_bias", "conv_bias", "use_conv_bias"}},
          {"attention and MLP side by side", {false}, {"parallel_attn", "use_parallel_residual"}},
          {"positions by other means",
           {false},
           {"alibi", "use_alibi", "use_dynamic_ntk", "use_logn_attn", "attn_temperature_tuning",
            "rope_interleave", "rope_interleaved"}},
          {"positions by other means", {1}, {"rope_ratio"}},
          {"layers without positions", {Json::array()}, {"no_rope_layers", "nope_layers"}},
          {"experts", {0}, {"num_experts", "num_local_experts", "n_routed_experts"}}};
}

std::vector<Keys> keys_of_scales(int64_t head_dim) {
  const auto width = static_cast<double>(head_dim);
  return {
      {"factor on embeddings",
       {1},
       {"embedding_multiplier", "embedding_multiplier_scale", "scale_emb", "embed_scale",
        "embedding_scale"}},
      {"scaled embeddings", {false}, {"scale_embedding", "scale_embeddings"}},
      {"factor on residuals", {1}, {"residual_multiplier", "residual_scale"}},
      {"scale of residuals by depth", {}, {"scale_depth"}},
      {"factor on logits",
       {1},
       {"logits_scaling", "logit_scale", "logits_scale", "lm_head_multiplier",
        "output_multiplier_scale"}},
      {"scale of logits by width", {}, {"dim_model_base"}},
      {"factor in a layer",
       {1},
       {"key_multiplier", "attention_in_multiplier", "attention_out_multiplier",
        "attn_output_multiplier", "mlp_multiplier"}},
      {"scale of attention scores other than head_dim^-0.5",
       {1 / std::sqrt(width)},
       {"attention_multiplier", "attention_scale", "softmax_scale"}},
      {"scale of attention scores other than head_dim^-0.5", {width}, {"query_pre_attn_scalar"}},
      {"bound on logits",
       {0, false},
       {"final_logit_softcapping", "final_logit_softcap", "logits_soft_cap", "logit_softcapping"}},
      {"bound on attention scores",
       {0, false},
       {"attn_logit_softcapping", "attn_logit_softcap", "attention_logit_softcapping"}}};
}

// Numbers in a text have fewer digits than those computed.
bool same(const Json& value, const Json& neutral) {
  if (!value.is_number() || !neutral.is_number()) return value == neutral;
  const auto number = neutral.get<double>();
  return std::abs(value.get<double>() - number) <= 1e-6 * std::abs(number);
}

// A window that is switched off beside it.
bool has_no_effect(const ConfigSection& config, std::string_view key) {
  return key.starts_with("sliding_window") && config.flag("use_sliding_window") == false;
}

void refuse_unless_neutral(const ConfigSection& config, const Keys& keys) {
  std::string known;
  for (const Json& neutral : keys.neutral) known += neutral.dump() + " or ";
  for (const char* key : keys.names) {
    if (!config.has(key) || has_no_effect(config, key)) continue;
    const Json& value = config.at(key);
    require(std::ranges::any_of(keys.neutral, [&](const Json& one) { return same(value, one); }),
            "{}: {} = {} is not supported ({}) - use a model where it is {}absent", config.where(),
            key, value.dump(), keys.meaning, known);
  }
}

}  // namespace

void refuse_what_is_not_computed(const ConfigSection& config, int64_t head_dim) {
  for (const auto& keys : {keys_of_layers(), keys_of_scales(head_dim)})
    for (const Keys& one : keys) refuse_unless_neutral(config, one);
}

std::string quantization_of(const ConfigSection& config) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    if (!config.has(key)) continue;
    const std::string entry = config.where() + ": " + key;
    const Json& value = config.at(key);
    for (const char* name : {"quant_method", "quant_algo", "format", "bits"})
      if (value.is_object() && value.contains(name))
        return str("{} ({} = {})", entry, name, value[name].dump());
    return entry + (value.is_object() ? " (without quant_method)" : " = " + value.dump());
  }
  return "";
}

}  // namespace longstraw
