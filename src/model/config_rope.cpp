#include "longstraw/model/config_rope.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

namespace longstraw {
namespace {

using Json = nlohmann::json;

constexpr double largest_factor = 1 << 20;  // times a size: within 64 bits
// May stand in several places, which must agree.
constexpr std::array shared_keys = {"rope_theta", "partial_rotary_factor",
                                    "original_max_position_embeddings"};

bool is_shared(const std::string& key) {
  return std::ranges::find(shared_keys, key) != shared_keys.end();
}

// YaRN as in transformers' `_compute_yarn_parameters`.
void apply_yarn(Rope& rope, const ConfigSection& parameters, int64_t rotary_dim) {
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

// The older name of the type, and the newer one.
std::string type_of(const ConfigSection& parameters) {
  const auto older = parameters.text("type", "default");
  const auto type = parameters.text("rope_type", older);
  require(!parameters.has("type") || older == type,
          "{}: rope_type \"{}\" differs from type \"{}\" - remove one of them", parameters.where(),
          type, older);
  return type;
}

// `key` of `config`, or its entry for layers with full attention, the only ones that rotate.
ConfigSection rotary_section(const ConfigSection& config, const char* key) {
  const ConfigSection all = config.section(key);
  std::vector<std::string> kinds, others;
  for (const auto& [name, value] : all.json().items())
    if (!value.is_null() && !is_shared(name)) (value.is_object() ? kinds : others).push_back(name);
  if (kinds.empty()) return all;
  require(others.empty(),
          "{}: entries for kinds of layers ({}) stand beside {} - move that into the entries",
          all.where(), fmt::join(kinds, ", "), fmt::join(others, ", "));
  require(all.has("full_attention"),
          "{}: there are entries for {}, but none for full_attention - add one, or give the "
          "parameters without kinds of layers",
          all.where(), fmt::join(kinds, ", "));
  require(!all.has("linear_attention") || all.at("linear_attention").empty(),
          "{}: linear_attention = {}, but these layers have no rotation - remove the entry",
          all.where(), all.has("linear_attention") ? all.at("linear_attention").dump() : "");
  return all.section("full_attention");
}

// The older name beside the newer one: readers differ on which of them counts.
void check_same_rope(const ConfigSection& parameters, const ConfigSection& scaling) {
  for (const auto& [key, value] : scaling.json().items()) {
    if (value.is_null() || is_shared(key)) continue;
    const bool type = key == "type" || key == "rope_type";
    const bool found = parameters.has(key.c_str());
    const bool equal = type ? type_of(scaling) == type_of(parameters)
                            : found && parameters.at(key.c_str()) == value;
    const Json other = type    ? Json(type_of(parameters))
                       : found ? parameters.at(key.c_str())
                               : Json();
    require(equal, "{}: {} = {} differs from {} in {} - remove rope_scaling or make them agree",
            scaling.where(), key, value.dump(), other.dump(), parameters.where());
  }
}

// A number that may stand in several places, which agree.
std::optional<double> agreed(const char* key, const std::vector<ConfigSection>& places) {
  const ConfigSection* first = nullptr;
  for (const ConfigSection& place : places) {
    if (!place.has(key)) continue;
    if (first == nullptr) first = &place;
    require(place.number(key) == first->number(key),
            "{}: {} = {} differs from {} in {} - remove one or make them agree", first->where(),
            key, first->at(key).dump(), place.at(key).dump(), place.where());
  }
  return first == nullptr ? std::nullopt : std::optional(first->number(key));
}

// The same within `places`, which alone have an effect, and in `outer`.
std::optional<double> agreed_inside(const char* key, std::vector<ConfigSection> places,
                                    const ConfigSection& outer) {
  const auto inside = agreed(key, places);
  require(inside || !outer.has(key),
          "{}: {} stands outside text_config, where it has no effect - move it inside",
          outer.where(), key);
  places.push_back(outer);
  return agreed(key, places);
}

}  // namespace

Rope parse_rope(const ConfigSection& config, const ConfigSection& outer, int64_t head_dim) {
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json none = Json::object();
  const ConfigSection parameters =
      config.has(key) ? rotary_section(config, key) : ConfigSection(none, config.where());
  std::vector<ConfigSection> places = {parameters};
  if (config.has(key)) places.push_back(config.section(key));
  if (config.has("rope_parameters") && config.has("rope_scaling")) {
    places.push_back(rotary_section(config, "rope_scaling"));
    places.push_back(config.section("rope_scaling"));
    check_same_rope(parameters, places[2]);
  }
  places.push_back(config);
  agreed("original_max_position_embeddings", places);
  const auto theta = agreed_inside("rope_theta", places, outer);
  require(theta.has_value(), "{}: rope_theta is missing", parameters.where());
  Rope rope;
  rope.type = type_of(parameters);
  rope.theta = *theta;
  require(rope.theta > 1, "{}: rope_theta = {} is not above 1", config.where(), rope.theta);
  rope.longest = config.size("max_position_embeddings");
  const double part = agreed_inside("partial_rotary_factor", places, outer).value_or(0.25);
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

}  // namespace longstraw
