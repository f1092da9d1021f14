#include "longstraw/model/config.hpp"

#include "longstraw/core/check.hpp"
#include "longstraw/core/json_check.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace longstraw {
namespace {

using Json = nlohmann::json;

// Products of two sizes, and of a few such, stay within 64 bits.
constexpr int64_t largest_size = int64_t{1} << 28;
constexpr double largest_factor = 1 << 20;  // times a size: within 64 bits
constexpr int64_t largest_head = 1 << 16;   // each pair of its dimensions has a frequency
constexpr int64_t most_layers = 1 << 12;    // each is listed before a tensor is missed

// Typed reading of one JSON object, with errors that name file and key.
class Section {
 public:
  Section(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    require(json.is_object(), "{}: not a JSON object", where_);
  }

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const std::string& where() const { return where_; }

  int64_t size(const char* key) const {
    const Json& value = at(key);
    require(value.is_number_integer(), "{}: {} is {}, not an integer", where_, key, value.dump());
    const auto number = value.get<int64_t>();
    require(number >= 1 && number <= largest_size, "{}: {} = {} is out of range (1 to 2^28)",
            where_, key, number);
    return number;
  }
  int64_t size(const char* key, int64_t absent) const { return has(key) ? size(key) : absent; }

  double number(const char* key) const {
    const Json& value = at(key);
    require(value.is_number(), "{}: {} is {}, not a number", where_, key, value.dump());
    return value.get<double>();
  }
  double number(const char* key, double absent) const { return has(key) ? number(key) : absent; }

  std::string text(const char* key) const {
    const Json& value = at(key);
    require(value.is_string(), "{}: {} is {}, not a string", where_, key, value.dump());
    return value.get<std::string>();
  }
  std::string text(const char* key, const std::string& absent) const {
    return has(key) ? text(key) : absent;
  }

  std::optional<bool> flag(const char* key) const {
    if (!has(key)) return std::nullopt;
    const Json& value = at(key);
    require(value.is_boolean(), "{}: {} is {}, not true or false", where_, key, value.dump());
    return value.get<bool>();
  }

  Section section(const char* key) const { return {at(key), where_ + ": " + key}; }

  const Json& at(const char* key) const {
    require(has(key), "{}: {} is missing", where_, key);
    return json_.at(key);
  }

 private:
  const Json& json_;
  std::string where_;
};

// YaRN as in transformers' `_compute_yarn_parameters`.
void apply_yarn(Rope& rope, const Section& parameters, int64_t rotary_dim) {
  rope.factor = parameters.number("factor");
  const int64_t original = parameters.size("original_max_position_embeddings");
  require(rope.factor >= 1 && rope.factor <= largest_factor,
          "{}: factor = {} is out of range (1 to 2^20)", parameters.where(), rope.factor);
  const double fast = parameters.number("beta_fast", 32), slow = parameters.number("beta_slow", 1);
  require(slow > 0 && fast > slow, "{}: beta_fast = {} and beta_slow = {} are not fast > slow > 0",
          parameters.where(), fast, slow);
  const bool truncate = parameters.flag("truncate").value_or(true);
  const auto correction = [&](double rotations) {
    return rotary_dim * std::log(original / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = correction(fast), high = correction(slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, rotary_dim - 1.0);
  require(std::isfinite(low) && std::isfinite(high),
          "{}: beta_fast = {}, beta_slow = {} and original_max_position_embeddings = {} give no "
          "range of frequencies",
          parameters.where(), fast, slow, original);
  if (low == high) high += 0.001;
  for (size_t j = 0; j < rope.inv_freq.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    rope.inv_freq[j] *= ramp / rope.factor + (1 - ramp);
  }
  const auto mscale = [&](double m) {
    return rope.factor <= 1 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1;
  };
  const double m = parameters.number("mscale", 0), all = parameters.number("mscale_all_dim", 0);
  rope.scale = m != 0 && all != 0 ? mscale(m) / mscale(all) : mscale(1);
  rope.scale = parameters.number("attention_factor", rope.scale);
  require(
      std::isfinite(rope.scale) && rope.scale > 0,
      "{}: attention_factor, mscale and mscale_all_dim give a scale of {}, which is not positive",
      parameters.where(), rope.scale);
  rope.longest = std::max(rope.longest, static_cast<int64_t>(rope.factor * original));
}

// The older name beside the newer one: readers differ on which of them counts.
void check_same_rope(const Section& config) {
  const Section parameters = config.section("rope_parameters");
  const Section scaling = config.section("rope_scaling");
  for (const auto& [key, value] : config.at("rope_scaling").items()) {
    const char* name = key == "type" && !parameters.has("type") ? "rope_type" : key.c_str();
    require(value.is_null() || (parameters.has(name) && parameters.at(name) == value),
            "{}: {} = {} differs from rope_parameters - remove rope_scaling or make them agree",
            scaling.where(), key, value.dump());
  }
}

Rope parse_rope(const Section& config, int64_t head_dim) {
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (config.has("rope_parameters") && config.has("rope_scaling")) check_same_rope(config);
  const Json none = Json::object();
  const Section parameters = config.has(key) ? config.section(key) : Section(none, config.where());
  Rope rope;
  rope.type = parameters.text("rope_type", parameters.text("type", "default"));
  rope.theta =
      parameters.has("rope_theta") ? parameters.number("rope_theta") : config.number("rope_theta");
  require(rope.theta > 1, "{}: rope_theta = {} is not above 1", config.where(), rope.theta);
  rope.longest = config.size("max_position_embeddings");
  const double part =
      parameters.number("partial_rotary_factor", config.number("partial_rotary_factor", 0.25));
  require(part > 0 && part <= 1, "{}: partial_rotary_factor = {} is not in (0, 1]", config.where(),
          part);
  const auto dim = static_cast<int64_t>(static_cast<double>(head_dim) * part);
  require(dim >= 2 && dim % 2 == 0,
          "{}: head_dim {} x partial_rotary_factor {} = {} rotary dimensions "
          "(an even number is needed)",
          config.where(), head_dim, part, dim);
  for (int64_t j = 0; j < dim / 2; ++j)
    rope.inv_freq.push_back(
        std::pow(rope.theta, -2.0 * static_cast<double>(j) / static_cast<double>(dim)));
  if (rope.type == "yarn") {
    apply_yarn(rope, parameters, dim);
  } else {
    require(rope.type == "default", "{}: rope_type \"{}\" is not known (default, yarn)",
            config.where(), rope.type);
    require(!parameters.has("factor"),
            "{}: {} gives a factor but rope_type is default - set rope_type to "
            "yarn or remove factor",
            config.where(), key);
  }
  return rope;
}

std::vector<LayerKind> parse_layers(const Section& config) {
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

void refuse_what_is_not_computed(const Section& config) {
  const auto act = config.text("hidden_act", "silu");
  require(act == "silu", "{}: hidden_act \"{}\" is not known (silu)", config.where(), act);
  const auto gate = config.text("output_gate_type", "silu");
  require(gate == "silu" || gate == "swish",
          "{}: output_gate_type \"{}\" is not known (silu, swish)", config.where(), gate);
  require(!config.flag("attention_bias").value_or(false),
          "{}: attention_bias = true is not supported (the family has none)", config.where());
  require(config.flag("attn_output_gate").value_or(true),
          "{}: attn_output_gate = false is not supported (the family has one)", config.where());
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
  const Section outer(json, where);
  const std::string type = outer.text("model_type");
  const bool wrapper = type == "qwen3_5" && outer.has("text_config");
  require(wrapper || type == "qwen3_5_text",
          "{}: model_type \"{}\" is not known (qwen3_5_text, or "
          "qwen3_5 with a text_config)",
          where, type);
  const Section config = wrapper ? outer.section("text_config") : outer;
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
  refuse_what_is_not_computed(config);

  ModelConfig c;
  c.model_type = type;
  c.vocab = config.size("vocab_size");
  c.hidden = config.size("hidden_size");
  c.intermediate = config.size("intermediate_size");
  c.heads = config.size("num_attention_heads");
  c.kv_heads = config.size("num_key_value_heads");
  c.head_dim = config.size("head_dim", 256);
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
  c.rope = parse_rope(config, c.head_dim);
  return c;
}

}  // namespace longstraw
