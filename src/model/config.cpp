#include "longstraw/model/config.hpp"

#include "longstraw/core/check.hpp"
#include "longstraw/core/json_check.hpp"
#include "longstraw/model/config_keys.hpp"
#include "longstraw/model/config_rope.hpp"
#include "longstraw/model/config_section.hpp"

namespace longstraw {
namespace {

using Json = nlohmann::json;

constexpr int64_t largest_head = 1 << 16;  // each pair of its dimensions has a frequency
constexpr int64_t most_layers = 1 << 12;   // each is listed before a tensor is missed

std::vector<LayerKind> parse_layers(const ConfigSection& config) {
  const int64_t count = config.size("num_hidden_layers");
  require(count <= most_layers, "{}: num_hidden_layers = {} is out of range (1 to {})",
          config.where(), count, most_layers);
  std::vector<LayerKind> kinds;
  if (!config.has("layer_types")) {
    const int64_t interval = config.size("full_attention_interval", 4);
    for (int64_t i = 0; i < count; ++i)
      kinds.push_back((i + 1) % interval == 0 ? LayerKind::full_attention
                                              : LayerKind::linear_attention);
    return kinds;
  }
  require(config.at("layer_types").is_array(), "{}: layer_types is {}, not a list", config.where(),
          config.at("layer_types").dump());
  for (const Json& type : config.at("layer_types")) {
    const bool full = type == "full_attention";
    require(full || type == "linear_attention",
            "{}: layer type {} is not known (linear_attention, "
            "full_attention)",
            config.where(), type.dump());
    kinds.push_back(full ? LayerKind::full_attention : LayerKind::linear_attention);
  }
  require(std::ssize(kinds) == count, "{}: layer_types lists {} layers, num_hidden_layers is {}",
          config.where(), kinds.size(), count);
  return kinds;
}

void check_sizes(const ModelConfig& c, const std::string& where) {
  require(c.head_dim <= largest_head, "{}: head_dim = {} is out of range (1 to {})", where,
          c.head_dim, largest_head);
  require(c.heads % c.kv_heads == 0,
          "{}: num_attention_heads {} is no multiple of "
          "num_key_value_heads {}",
          where, c.heads, c.kv_heads);
  require(c.linear_value_heads % c.linear_key_heads == 0,
          "{}: linear_num_value_heads {} is no "
          "multiple of linear_num_key_heads {}",
          where, c.linear_value_heads, c.linear_key_heads);
  require(c.conv_taps >= 2 && c.conv_taps <= 4,
          "{}: linear_conv_kernel_dim = {} is not supported (2 to 4)", where, c.conv_taps);
  require(c.norm_eps > 0, "{}: rms_norm_eps = {} is not positive", where, c.norm_eps);
}

}  // namespace

ModelConfig parse_config(const std::string& text, const std::string& where) {
  const Json json = parse_json<Json>(text, where);
  const ConfigSection outer(json, where);
  const std::string type = outer.text("model_type");
  const bool wrapper = type == "qwen3_5" && outer.has("text_config");
  require(wrapper || type == "qwen3_5_text",
          "{}: model_type \"{}\" is not known (qwen3_5_text, or "
          "qwen3_5 with a text_config)",
          where, type);
  const ConfigSection config = wrapper ? outer.section("text_config") : outer;
  if (wrapper) {
    const auto inner = config.text("model_type", "qwen3_5_text");
    require(inner == "qwen3_5_text" || inner == "qwen3_5",
            "{}: model_type \"{}\" is not known "
            "(qwen3_5_text)",
            config.where(), inner);
    for (const char* key : {"rope_parameters", "rope_scaling"})
      require(!outer.has(key) || (config.has(key) && outer.at(key) == config.at(key)),
              "{}: {} stands outside text_config, where it has no effect - move it inside", where,
              key);
  }
  const int64_t head_dim = config.size("head_dim", 256);
  refuse_what_is_not_computed(config, head_dim);
  if (wrapper) refuse_what_is_not_computed(outer, head_dim);

  ModelConfig c;
  c.model_type = type;
  c.quantization = quantization_of(outer);
  if (wrapper && c.quantization.empty()) c.quantization = quantization_of(config);
  c.vocab = config.size("vocab_size");
  c.hidden = config.size("hidden_size");
  c.intermediate = config.size("intermediate_size");
  c.heads = config.size("num_attention_heads");
  c.kv_heads = config.size("num_key_value_heads");
  c.head_dim = head_dim;
  c.linear_key_heads = config.size("linear_num_key_heads", 16);
  c.linear_value_heads = config.size("linear_num_value_heads", 32);
  c.linear_key_dim = config.size("linear_key_head_dim", 128);
  c.linear_value_dim = config.size("linear_value_head_dim", 128);
  c.conv_taps = config.size("linear_conv_kernel_dim", 4);
  c.norm_eps = config.number("rms_norm_eps", 1e-6);
  const auto tied = config.flag("tie_word_embeddings");
  c.tied_embeddings = tied ? *tied : outer.flag("tie_word_embeddings").value_or(false);
  c.layers = parse_layers(config);
  check_sizes(c, config.where());
  c.rope = parse_rope(config, outer, head_dim);
  return c;
}

}  // namespace longstraw
