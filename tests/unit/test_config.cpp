// What config.json may say of a model, and what is refused.
#include "longstraw/model/config.hpp"

#include "support/errors.hpp"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

namespace longstraw {
namespace {

using support::expect_parts;
using support::refusal_of;
using Json = nlohmann::json;

constexpr const char* where = "m/config.json";

Json text_config() {
  return {{"model_type", "qwen3_5_text"},
          {"vocab_size", 96},
          {"hidden_size", 32},
          {"intermediate_size", 64},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"linear_num_key_heads", 2},
          {"linear_num_value_heads", 4},
          {"linear_key_head_dim", 8},
          {"linear_value_head_dim", 12},
          {"linear_conv_kernel_dim", 4},
          {"max_position_embeddings", 4096},
          {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", true},
          {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}};
}

Json wrapped(Json text) { return {{"model_type", "qwen3_5"}, {"text_config", std::move(text)}}; }

ModelConfig parsed(const Json& json) { return parse_config(json.dump(), where); }

std::string refused(const Json& json) {
  const auto refusal = refusal_of([&] { parsed(json); });
  EXPECT_EQ(refusal.status, 1);
  EXPECT_THAT(refusal.message, testing::StartsWith(where));
  return refusal.message;
}

Json with(const std::string& key, const Json& value) {
  Json json = text_config();
  json[key] = value;
  return json;
}

Json without(const std::string& key) {
  Json json = text_config();
  json.erase(key);
  return json;
}

TEST(Config, IsReadFromTheTextModelAndFromItsWrapper) {
  for (const Json& json : {text_config(), wrapped(text_config())}) {
    const ModelConfig c = parsed(json);
    EXPECT_EQ(c.vocab, 96);
    EXPECT_EQ(c.hidden, 32);
    EXPECT_EQ(c.intermediate, 64);
    EXPECT_EQ(c.heads, 4);
    EXPECT_EQ(c.kv_heads, 2);
    EXPECT_EQ(c.head_dim, 16);
    EXPECT_EQ(c.linear_key_heads, 2);
    EXPECT_EQ(c.linear_value_heads, 4);
    EXPECT_EQ(c.linear_key_dim, 8);
    EXPECT_EQ(c.linear_value_dim, 12);
    EXPECT_EQ(c.conv_taps, 4);
    EXPECT_EQ(c.norm_eps, 1e-5);
    EXPECT_EQ(c.conv_channels(), 2 * 2 * 8 + 4 * 12);
    EXPECT_TRUE(c.tied_embeddings);
    EXPECT_EQ(c.rope.longest, 4096);
  }
}

TEST(Config, TiesMayStandInTheWrapper) {
  Json json = wrapped(without("tie_word_embeddings"));
  EXPECT_FALSE(parsed(json).tied_embeddings);
  json["tie_word_embeddings"] = true;
  EXPECT_TRUE(parsed(json).tied_embeddings);
  json["text_config"]["tie_word_embeddings"] = false;
  EXPECT_FALSE(parsed(json).tied_embeddings);
}

TEST(Config, LayersAreDerivedOrListed) {
  constexpr auto linear = LayerKind::linear_attention, full = LayerKind::full_attention;
  EXPECT_EQ(parsed(text_config()).layers, (std::vector{linear, linear, linear, full}));
  EXPECT_EQ(parsed(with("full_attention_interval", 2)).layers,
            (std::vector{linear, full, linear, full}));
  EXPECT_EQ(parsed(with("layer_types",
                        {"full_attention", "linear_attention", "full_attention", "full_attention"}))
                .layers,
            (std::vector{full, linear, full, full}));
  expect_parts(refused(with("layer_types", {"full_attention", "linear_attention"})),
               {"layer_types", "2", "num_hidden_layers", "4"});
  expect_parts(refused(with("layer_types", {"sliding_attention"})), {"sliding_attention"});
  expect_parts(refused(with("layer_types", "full_attention")), {"layer_types", "not a list"});
}

TEST(Config, UnknownFamiliesAreRefused) {
  for (const char* type : {"qwen3_next", "qwen3_5_moe_text", "llama", "qwen4_exp", ""})
    expect_parts(refused(with("model_type", type)), {"model_type", type, "qwen3_5_text"});
  Json wrapper = wrapped(with("model_type", "qwen3_5_moe_text"));
  expect_parts(refused(wrapper), {"text_config", "qwen3_5_moe_text"});
  // The wrapper's own name without a text_config is no text model.
  expect_parts(refused(with("model_type", "qwen3_5")), {"qwen3_5", "text_config"});
  expect_parts(refused(without("model_type")), {"model_type", "missing"});
}

TEST(Config, WhatIsNotComputedIsRefused) {
  for (const char* act : {"gelu", "relu", "swish"})
    expect_parts(refused(with("hidden_act", act)), {"hidden_act", act, "silu"});
  expect_parts(refused(with("output_gate_type", "sigmoid")), {"output_gate_type", "sigmoid"});
  EXPECT_EQ(parsed(with("output_gate_type", "swish")).hidden, 32);
  expect_parts(refused(with("attention_bias", true)), {"attention_bias = true", "false or absent"});
  expect_parts(refused(with("attn_output_gate", false)), {"attn_output_gate = false", "true"});
  expect_parts(refused(with("attention_dropout", "0.1")), {"attention_dropout = \"0.1\""});
}

struct Key {
  const char* name;
  Json refused;
  std::vector<Json> neutral;
};

// Each key by its meaning; head_dim is 16.
std::vector<Key> keys_of_arithmetic() {
  std::vector<Key> keys = {{"embedding_multiplier", 12.0, {1, 1.0}},
                           {"residual_multiplier", 0.22, {1}},
                           {"scale_emb", 12, {1}},
                           {"scale_depth", 1.4, {}},
                           {"dim_model_base", 256, {}},
                           {"logits_scaling", 8, {1.0}},
                           {"attention_multiplier", 1, {0.25}},
                           {"query_pre_attn_scalar", 256, {16}},
                           {"final_logit_softcapping", 30.0, {0, false}},
                           {"attn_logit_softcapping", 50.0, {0}},
                           {"sliding_window", 4096, {0, false}},
                           {"use_sliding_window", true, {false}},
                           {"mlp_bias", true, {false}},
                           {"qkv_bias", true, {false}},
                           {"clip_qkv", 8.0, {0}},
                           {"no_rope_layers", {1, 0}, {Json::array()}},
                           {"num_experts", 8, {0}}};
  for (const char* name :
       {"attention_dropout", "residual_dropout", "hidden_dropout", "hidden_dropout_prob",
        "embd_pdrop", "resid_pdrop", "attn_pdrop", "attention_probs_dropout_prob"})
    keys.push_back({name, 0.1, {0, 0.0, false}});
  return keys;
}

TEST(Config, KeysThatChangeTheArithmeticAreRefusedUnlessNeutral) {
  for (const auto& [name, value, neutral] : keys_of_arithmetic()) {
    const std::string found = str("{} = {}", name, value.dump());
    const std::string message = refused(with(name, value));
    expect_parts(message, {found, "not supported", "absent"});
    expect_parts(refused(wrapped(with(name, value))), {"text_config: " + found});
    Json outside = wrapped(text_config());
    outside[name] = value;
    expect_parts(refused(outside), {std::string(where) + ": " + found});
    EXPECT_EQ(parsed(with(name, nullptr)).hidden, 32) << name;
    for (const Json& fine : neutral) EXPECT_EQ(parsed(with(name, fine)).hidden, 32) << name;
  }
  // A window that is switched off, and keys that mean nothing here.
  Json json = with("sliding_window", 4096);
  json["use_sliding_window"] = false;
  json["max_window_layers"] = 28;
  json["initializer_range"] = 0.02;
  json["vision_config"] = {{"attention_dropout", 0.1}};
  EXPECT_EQ(parsed(json).hidden, 32);
}

TEST(Config, EntriesOfQuantisedWeightsAreFoundInAllPlaces) {
  EXPECT_EQ(parsed(text_config()).quantization, "");
  EXPECT_EQ(parsed(with("quantization_config", nullptr)).quantization, "");
  const Json fp8 = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  EXPECT_EQ(parsed(with("quantization_config", fp8)).quantization,
            "m/config.json: quantization_config (quant_method = \"fp8\")");
  EXPECT_EQ(parsed(wrapped(with("quantization_config", fp8))).quantization,
            "m/config.json: text_config: quantization_config (quant_method = \"fp8\")");
  Json outside = wrapped(text_config());
  outside["compression_config"] = {{"format", "float-quantized"}};
  EXPECT_EQ(parsed(outside).quantization,
            "m/config.json: compression_config (format = \"float-quantized\")");
  EXPECT_EQ(parsed(with("quantization", {{"bits", 4}})).quantization,
            "m/config.json: quantization (bits = 4)");
  EXPECT_EQ(parsed(with("quantization_config", Json::object())).quantization,
            "m/config.json: quantization_config (without quant_method)");
}

TEST(Config, SizesThatDoNotFitAreRefused) {
  expect_parts(refused(with("num_key_value_heads", 3)), {"num_attention_heads", "4", "3"});
  expect_parts(refused(with("linear_num_value_heads", 5)), {"linear_num_value_heads", "5", "2"});
  for (int taps : {1, 5}) expect_parts(refused(with("linear_conv_kernel_dim", taps)), {"2 to 4"});
  expect_parts(refused(with("rms_norm_eps", 0)), {"rms_norm_eps"});
  for (const Json& size : {Json(0), Json(-3), Json(int64_t{1} << 40), Json(3.5), Json("32")})
    expect_parts(refused(with("hidden_size", size)), {"hidden_size"});
  // Small enough for a size, but a list of so many layers would fill the memory.
  expect_parts(refused(with("num_hidden_layers", 1 << 28)), {"num_hidden_layers", "268435456"});
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "num_key_value_heads", "max_position_embeddings"})
    expect_parts(refused(without(key)), {key, "missing"});
}

TEST(Config, TextThatIsNoJsonIsRefused) {
  for (const char* text : {"", "{", "[1]", "7"}) {
    const auto refusal = refusal_of([&] { parse_config(text, where); });
    expect_parts(refusal.message, {where, "JSON"});
  }
}

TEST(Config, TextThatSaysTwoThingsOrNestsWithoutEndIsRefused) {
  const auto message = [](const std::string& from, const std::string& to) {
    std::string text = text_config().dump();
    text.replace(text.find(from), from.size(), to);
    return refusal_of([&] { parse_config(text, where); }).message;
  };
  const std::string size = "\"hidden_size\":32", theta = "\"rope_theta\"";
  expect_parts(message(size, size + ",\"hidden_size\":64"),
               {where, "key \"hidden_size\" is given twice"});
  expect_parts(message(theta, theta + ":1e4," + theta), {where, "key \"rope_theta\" is given"});
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  expect_parts(message(size, "\"hidden_size\":" + deep), {where, "nested"});
}

TEST(Rope, NoEndlessTable) {
  Json json = with("head_dim", 1 << 28);
  json["rope_parameters"]["partial_rotary_factor"] = 1;
  expect_parts(refused(json), {"head_dim", "268435456", "65536"});
}

TEST(Rope, FrequenciesOfTheRotaryPart) {
  // 16 x 0.25 = 4 dimensions, 2 pairs
  const Rope quarter = parsed(text_config()).rope;
  ASSERT_EQ(quarter.inv_freq.size(), 2u);
  EXPECT_DOUBLE_EQ(quarter.inv_freq[0], 1);
  EXPECT_DOUBLE_EQ(quarter.inv_freq[1], 1e-3);
  EXPECT_EQ(quarter.scale, 1);
  Json json = text_config();
  json["rope_parameters"]["partial_rotary_factor"] = 1.0;
  const Rope whole = parsed(json).rope;
  ASSERT_EQ(whole.inv_freq.size(), 8u);
  for (size_t j = 0; j < 8; ++j)
    EXPECT_DOUBLE_EQ(whole.inv_freq[j], std::pow(1e6, -static_cast<double>(j) / 8));
}

TEST(Rope, UnknownTypesAndOddPartsAreRefused) {
  for (const char* type : {"linear", "dynamic", "longrope", "llama3"}) {
    Json json = text_config();
    json["rope_parameters"]["rope_type"] = type;
    expect_parts(refused(json), {"rope_type", type, "yarn"});
  }
  Json json = text_config();
  json["rope_parameters"]["factor"] = 4.0;
  expect_parts(refused(json), {"factor", "yarn"});
  json = text_config();
  json["rope_parameters"]["partial_rotary_factor"] = 0.2;  // 3.2 dimensions
  expect_parts(refused(json), {"partial_rotary_factor", "3 rotary dimensions"});
  json["rope_parameters"]["partial_rotary_factor"] = 1.5;
  expect_parts(refused(json), {"partial_rotary_factor"});
  json = text_config();
  json["rope_parameters"].erase("rope_theta");
  expect_parts(refused(json), {"rope_theta"});
  // Outside text_config it would be without effect.
  json = wrapped(text_config());
  json["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  expect_parts(refused(json), {"rope_parameters", "outside text_config"});
}

Json yarn(double factor) {
  Json json = text_config();
  json["head_dim"] = 256;
  json["max_position_embeddings"] = 262144;
  json["rope_parameters"] = {{"rope_type", "yarn"},
                             {"rope_theta", 1e7},
                             {"factor", factor},
                             {"original_max_position_embeddings", 262144}};
  return json;
}

// The family's card (rotary dimension 64): models.md gives the corrected range as 14 to 22.
TEST(Rope, YarnFollowsItsFormula) {
  for (double factor : {1.0, 4.0, 8.0}) {
    const Rope rope = parsed(yarn(factor)).rope;
    ASSERT_EQ(rope.inv_freq.size(), 32u);
    for (int j = 0; j < 32; ++j) {
      const double plain = std::pow(1e7, -2.0 * j / 64);
      double ramp = (j - 14) / 8.0;
      if (ramp < 0) ramp = 0;
      if (ramp > 1) ramp = 1;
      EXPECT_NEAR(rope.inv_freq[j], plain / factor * ramp + plain * (1 - ramp), 1e-15 * plain) << j;
    }
    EXPECT_DOUBLE_EQ(rope.scale, factor == 1 ? 1 : 0.1 * std::log(factor) + 1);
    EXPECT_EQ(rope.longest, static_cast<int64_t>(factor) * 262144);
    EXPECT_EQ(rope.factor, factor);
  }
}

// Other fields of YaRN, each against the formula with its value put in.
TEST(Rope, YarnTakesItsOtherFields) {
  const auto rope_with = [](const char* key, const Json& value) {
    Json json = yarn(4);
    json["rope_parameters"][key] = value;
    return parsed(json).rope;
  };
  EXPECT_EQ(rope_with("attention_factor", 1.5).scale, 1.5);
  // mscale and mscale_all_dim count together only
  EXPECT_EQ(rope_with("mscale", 0.7).scale, parsed(yarn(4)).rope.scale);
  Json json = yarn(4);
  json["rope_parameters"]["mscale"] = 0.7;
  json["rope_parameters"]["mscale_all_dim"] = 0.4;
  EXPECT_DOUBLE_EQ(parsed(json).rope.scale,
                   (0.07 * std::log(4.0) + 1) / (0.04 * std::log(4.0) + 1));

  const auto expect_range = [](const Rope& rope, double low, double high) {
    for (int j = 0; j < 32; ++j) {
      const double plain = std::pow(1e7, -2.0 * j / 64);
      const double ramp = std::min(1.0, std::max(0.0, (j - low) / (high - low)));
      EXPECT_NEAR(rope.inv_freq[j], plain / 4 * ramp + plain * (1 - ramp), 1e-15 * plain) << j;
    }
  };
  const auto correction = [](double rotations) {
    return 64 * std::log(262144 / (rotations * 2 * std::numbers::pi)) / (2 * std::log(1e7));
  };
  expect_range(rope_with("beta_fast", 100), std::floor(correction(100)), std::ceil(correction(1)));
  expect_range(rope_with("beta_slow", 4), std::floor(correction(32)), std::ceil(correction(4)));
  expect_range(rope_with("truncate", false), correction(32), correction(1));
}

TEST(Rope, IncompleteYarnIsRefused) {
  for (const char* key : {"factor", "original_max_position_embeddings"}) {
    Json json = yarn(4);
    json["rope_parameters"].erase(key);
    expect_parts(refused(json), {"rope_parameters", key, "missing"});
  }
  for (const double factor : {0.5, 1e300})
    expect_parts(refused(yarn(factor)), {"factor", str("{}", factor)});
}

TEST(Rope, YarnBetasWithoutARangeAreRefused) {
  Json json = yarn(4);
  json["rope_parameters"]["beta_fast"] = 2e-320;
  json["rope_parameters"]["beta_slow"] = 1e-320;
  expect_parts(refused(json), {"beta_fast", "beta_slow", "no range"});
}

// Older files: rope_scaling with `type`, and rope_theta beside it.
TEST(Rope, OlderSpellings) {
  Json json = yarn(4);
  Json old = json["rope_parameters"];
  old["type"] = old["rope_type"];
  old.erase("rope_type"), old.erase("rope_theta");
  json.erase("rope_parameters");
  json["rope_scaling"] = old, json["rope_theta"] = 1e7;
  EXPECT_EQ(parsed(json).rope.inv_freq, parsed(yarn(4)).rope.inv_freq);
}

// Parameters by kind of layer: `change` is made to a config with those of `yarn(4)`.
Json by_kind(const std::function<void(Json& parameters)>& change) {
  Json json = yarn(4);
  Json parameters = {{"full_attention", json["rope_parameters"]}};
  change(parameters);
  json["rope_parameters"] = parameters;
  return json;
}

TEST(Rope, EntriesByKindOfLayer) {
  const Rope plain = parsed(yarn(4)).rope;
  const auto expect_same = [&](const Json& json) {
    const Rope rope = parsed(json).rope;
    EXPECT_EQ(rope.type, "yarn");
    EXPECT_EQ(rope.theta, 1e7);
    EXPECT_EQ(rope.inv_freq, plain.inv_freq);
    EXPECT_EQ(rope.scale, plain.scale);
    EXPECT_EQ(rope.longest, plain.longest);
  };
  expect_same(by_kind([](Json&) {}));
  expect_same(wrapped(by_kind([](Json&) {})));
  expect_same(by_kind([](Json& p) {
    p["sliding_attention"] = {{"rope_type", "linear"}, {"rope_theta", 1e4}, {"factor", 8.0}};
    p["linear_attention"] = nullptr;
  }));
  // What the kinds share may stand beside them.
  expect_same(by_kind([](Json& p) {
    p["full_attention"].erase("rope_theta");
    p["rope_theta"] = 1e7;
  }));
  Json outside = by_kind([](Json& p) { p["full_attention"].erase("rope_theta"); });
  outside["rope_theta"] = 10000000;
  expect_same(outside);
}

TEST(Rope, EntriesByKindThatCannotBeReadAreRefused) {
  expect_parts(refused(by_kind([](Json& p) {
                 p["sliding_attention"] = p["full_attention"];
                 p.erase("full_attention");
               })),
               {"rope_parameters", "entries for sliding_attention", "none for full_attention"});
  expect_parts(refused(by_kind([](Json& p) { p["rope_type"] = "yarn"; })),
               {"rope_parameters", "full_attention", "beside rope_type"});
  expect_parts(refused(by_kind([](Json& p) {
                 p["linear_attention"] = {{"rope_theta", 1e4}};
               })),
               {"rope_parameters", "linear_attention", "no rotation"});
  expect_parts(refused(by_kind([](Json& p) { p["full_attention"].erase("rope_theta"); })),
               {"rope_parameters: full_attention: rope_theta is missing"});
  expect_parts(refused(by_kind([](Json& p) { p["rope_theta"] = 1e4; })),
               {"rope_parameters: full_attention: rope_theta = 10000000.0 differs from 10000.0"});
}

TEST(Rope, PlacesThatDifferAreRefused) {
  const auto in_both = [](const char* key, const Json& inside, const Json& outside) {
    Json json = yarn(4);
    json["rope_parameters"][key] = inside;
    json[key] = outside;
    return json;
  };
  const Rope plain = parsed(yarn(4)).rope;
  EXPECT_EQ(parsed(in_both("partial_rotary_factor", 0.25, 0.25)).rope.inv_freq, plain.inv_freq);
  EXPECT_EQ(parsed(in_both("rope_theta", 1e7, 10000000)).rope.inv_freq, plain.inv_freq);
  EXPECT_EQ(parsed(in_both("rope_theta", nullptr, 1e7)).rope.inv_freq, plain.inv_freq);
  expect_parts(refused(in_both("partial_rotary_factor", 0.25, 0.5)),
               {"rope_parameters: partial_rotary_factor = 0.25 differs from 0.5 in m/config.json"});
  expect_parts(refused(in_both("rope_theta", 1e7, 1e6)),
               {"rope_parameters: rope_theta = 10000000.0 differs from 1000000.0"});
  expect_parts(refused(in_both("original_max_position_embeddings", 262144, 4096)),
               {"original_max_position_embeddings = 262144 differs from 4096"});
  // In the wrapper around the text model.
  Json json = wrapped(yarn(4));
  json["rope_theta"] = 1e7;
  EXPECT_EQ(parsed(json).rope.inv_freq, plain.inv_freq);
  json["rope_theta"] = 1e6;
  expect_parts(refused(json), {"rope_theta = 10000000.0 differs from 1000000.0"});
  json = wrapped(yarn(4));
  json["partial_rotary_factor"] = 0.5;
  expect_parts(refused(json), {"partial_rotary_factor", "outside text_config"});
}

TEST(Rope, OlderNameBesideTheNewerOneAgrees) {
  Json json = yarn(4);
  json["rope_scaling"] = {{"type", "yarn"},
                          {"factor", 4},
                          {"rope_theta", 1e7},
                          {"original_max_position_embeddings", 262144}};
  EXPECT_EQ(parsed(json).rope.inv_freq, parsed(yarn(4)).rope.inv_freq);
  Json changed = json;
  changed["rope_scaling"]["factor"] = 8;
  expect_parts(refused(changed), {"rope_scaling: factor = 8 differs from 4.0", "rope_parameters"});
  changed = json;
  changed["rope_scaling"]["type"] = "linear";
  expect_parts(refused(changed), {"rope_scaling: type = \"linear\" differs from \"yarn\""});
  changed = json;
  changed["rope_scaling"]["rope_theta"] = 1e6;
  expect_parts(refused(changed), {"rope_theta = 10000000.0 differs from 1000000.0"});
  changed = yarn(4);
  changed["rope_parameters"]["type"] = "default";
  expect_parts(refused(changed), {"rope_type \"yarn\" differs from type \"default\""});
}

}  // namespace
}  // namespace longstraw
