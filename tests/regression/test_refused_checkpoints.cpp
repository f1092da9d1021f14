// Checkpoints that are refused before any work, by file, tensor and key (trials 19 to 21, 23, 47
// and their kinds), and matrix products that cannot be trusted (trials 62, 63).
#include "regression/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

namespace longstraw::program {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int failed = 1;
constexpr const char* second = "model/model-00002-of-00002.safetensors";
constexpr const char* index_file = "model/model.safetensors.index.json";

class RefusedCheckpoints : public testing::Test {
 protected:
  void use(const std::string& golden) {
    fs::remove_all(place / "model");
    place.copy_model(golden, "model");
    place.write_deck("deck.ini", "model", golden_folder(golden) + "/rollouts.jsonl");
  }
  void expect(const std::vector<std::string>& named, const std::string& more = "") {
    expect_refused(place, "run -i deck.ini -d out " + more, failed, named);
  }
  // config.json of a golden case, changed.
  void expect_config(const std::string& golden, const std::function<void(Json&)>& change,
                     std::vector<std::string> named) {
    use(golden);
    edit_json(place / "model/config.json", change);
    named.push_back(place / "model");
    expect(named);
  }

  Workplace place;
};

// Trial 19.
TEST_F(RefusedCheckpoints, TruncatedShard) {
  use("hybrid_tied_bf16");
  const auto bytes = fs::file_size(place / second);
  fs::resize_file(place / second, bytes - 1024);
  expect({place / second, "truncated", std::to_string(bytes - 1024)});
  // The same file, cut within its header, and empty.
  fs::resize_file(place / second, 100);
  expect({place / second, "header ends", "100"});
  fs::resize_file(place / second, 0);
  expect({place / second, "0 bytes"});
  expect_refused(place, "score -i deck.ini -o out.jsonl", failed, {place / second, "0 bytes"});
}

// Trial 20.
TEST_F(RefusedCheckpoints, MissingShard) {
  use("hybrid_tied_bf16");
  fs::remove(place / second);
  expect({place / "model", "index.json", "model-00002-of-00002.safetensors", "missing"});
  fs::remove(place / index_file);
  expect({place / "model", "1 of 2 files"});
  fs::remove(place / "model/model-00001-of-00002.safetensors");
  expect({place / "model", "holds no weights"});
  fs::remove(place / "model/config.json");
  expect({place / "model", "config.json", "[model] checkpoint"});
  expect({place / "nowhere", "config.json"}, "model.checkpoint=nowhere");
}

// Trial 21.
TEST_F(RefusedCheckpoints, TensorsThatAreNotWhereTheIndexSays) {
  use("hybrid_tied_bf16");
  const std::string tensor = "model.language_model.layers.7.mlp.up_proj.weight";
  Safetensors shard = Safetensors::read(place / second);
  shard.header[tensor + "_"] = shard.header.at(tensor);
  shard.header.erase(tensor);
  shard.write(place / second);
  expect({place / "model", "index.json", tensor, "no file"});
  edit_json(place / index_file, [&](Json& index) { index["weight_map"].erase(tensor); });
  expect({place / "model", tensor, "is missing"});

  use("hybrid_tied_bf16");
  edit_json(place / index_file, [&](Json& index) {
    index["weight_map"]["model.more"] = "model-00001-of-00002.safetensors";
  });
  expect({place / "model", "index.json", "model.more", "no file"});

  use("hybrid_tied_bf16");
  shard = Safetensors::read(place / second);
  shard.data += "trailing";
  shard.write(place / second);
  expect({place / second, "8 bytes follow the last tensor"});
}

// Trial 21: extra tensors are named and kept.
TEST_F(RefusedCheckpoints, ExtraTensorsAreListedAndIgnored) {
  use("hybrid_tied_bf16");
  EXPECT_THAT(place.succeed(2, "run -n -i deck.ini").out, HasSubstr("not used   2 tensor(s)"));
  const Outcome outcome = place.succeed(1, "inspect model");
  EXPECT_THAT(outcome.out, HasSubstr("mtp.fc.weight"));
  EXPECT_THAT(outcome.out, HasSubstr("model.visual.patch_embed.proj.weight"));
}

// Trial 23.
TEST_F(RefusedCheckpoints, ConfigsThatDoNotFitTheTensors) {
  expect_config("hybrid", [](Json& c) { c["num_attention_heads"] = 8; },
                {"layers.1.self_attn.q_proj.weight", "[128, 32]", "[256, 32]"});
  expect_config("hybrid", [](Json& c) { c["num_attention_heads"] = 3; },
                {"num_attention_heads 3", "num_key_value_heads 2"});
  expect_config("hybrid", [](Json& c) { c["vocab_size"] = 65; },
                {"embed_tokens.weight", "[64, 32]", "[65, 32]"});
  expect_config("hybrid", [](Json& c) { c["num_hidden_layers"] = 5; }, {"num_hidden_layers is 5"});
  expect_config("hybrid_tied_bf16",
                [](Json& c) { c["text_config"]["tie_word_embeddings"] = false; },
                {"lm_head.weight", "is missing", "tie_word_embeddings"});
  expect_config("hybrid", [](Json& c) { c["hidden_size"] = 1 << 20; }, {"embed_tokens.weight"});
  expect_config("hybrid", [](Json& c) { c.erase("vocab_size"); }, {"vocab_size is missing"});
  write_file(place / "model/config.json", "{");
  expect({place / "model/config.json", "no valid JSON"});
}

// Nesting that would exhaust the stack of whoever walks over it.
TEST_F(RefusedCheckpoints, DeepJson) {
  const std::string deep = "{\"a\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  for (const char* file : {"model/config.json", index_file}) {
    use("hybrid_tied_bf16");
    write_file(place / file, deep);
    expect({place / file, "nested more than 64 deep"});
    expect_refused(place, "score -i deck.ini -o out.jsonl", failed, {place / file, "nested"});
  }
}

TEST_F(RefusedCheckpoints, WhatTheProgramDoesNotCompute) {
  expect_config("hybrid", [](Json& c) { c["model_type"] = "qwen9"; }, {"model_type \"qwen9\""});
  expect_config("hybrid", [](Json& c) { c["hidden_act"] = "gelu"; }, {"hidden_act = \"gelu\""});
  expect_config("hybrid", [](Json& c) { c["attention_bias"] = true; }, {"attention_bias"});
  expect_config("hybrid", [](Json& c) { c["layer_types"][0] = "sliding_attention"; },
                {"sliding_attention"});
  use("hybrid");
  Safetensors weights = Safetensors::read(place / "model/model.safetensors");
  auto& entry = weights.header["model.layers.0.mlp.up_proj.weight"];
  entry["dtype"] = "I32";
  weights.write(place / "model/model.safetensors");
  expect({place / "model/model.safetensors", "layers.0.mlp.up_proj.weight", "I32"});
}

// Trial 64: configuration and tensors that disagree on whether weights are quantised, and quantised
// weights as such.
TEST_F(RefusedCheckpoints, QuantisedWeightsAndEntriesOfThem) {
  const Json fp8 = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const char* entry = "quantization_config";
  expect_config("hybrid", [&](Json& c) { c[entry] = fp8; },
                {"config.json: quantization_config (quant_method = \"fp8\")", "of type F32"});
  expect_config("hybrid_tied_bf16", [&](Json& c) { c["text_config"]["compression_config"] = fp8; },
                {"text_config: compression_config", "\"fp8\"", "of type BF16"});
  use("hybrid");
  write_file(place / "model/hf_quant_config.json", "{}");
  expect({place / "model/hf_quant_config.json", "of type F32"});

  // A fourth of the bytes, the rest of them another tensor.
  use("hybrid");
  const std::string tensor = "model.layers.0.mlp.up_proj.weight";
  const std::string file = place / "model/model.safetensors";
  Safetensors weights = Safetensors::read(file);
  const auto plain = weights.header;
  Json& up = weights.header[tensor];
  const int64_t begin = up["data_offsets"][0], end = up["data_offsets"][1];
  up["dtype"] = "F8_E4M3";
  up["data_offsets"][1] = begin + (end - begin) / 4;
  weights.header["mtp.rest"] = {{"dtype", "U8"},
                                {"shape", {(end - begin) / 4 * 3}},
                                {"data_offsets", {begin + (end - begin) / 4, end}}};
  weights.write(file);
  expect({file, tensor, "F8_E4M3", "no quantization_config"});
  edit_json(place / "model/config.json", [&](Json& c) { c[entry] = fp8; });
  expect({file, tensor, "F8_E4M3", "not supported", "quant_method = \"fp8\""});

  // The scales alone.
  use("hybrid");
  weights.header = plain;
  const int64_t bytes = std::ssize(weights.data);
  weights.header[tensor + "_scale_inv"] = {
      {"dtype", "F32"}, {"shape", {1, 1}}, {"data_offsets", {bytes, bytes + 4}}};
  weights.data += std::string(4, '\0');
  weights.write(file);
  expect({file, tensor + "_scale_inv", "no quantization_config"});
}

// Trial 65. Each key is tested with the reading of the configuration.
TEST_F(RefusedCheckpoints, KeysThatChangeTheArithmetic) {
  expect_config("hybrid", [](Json& c) { c["attention_dropout"] = 0.1; },
                {"config.json: attention_dropout = 0.1", "0 or false or absent"});
  expect_config("hybrid_tied_bf16", [](Json& c) { c["text_config"]["logits_scaling"] = 8; },
                {"text_config: logits_scaling = 8"});
  expect_config("hybrid_tied_bf16", [](Json& c) { c["final_logit_softcapping"] = 30.0; },
                {"config.json: final_logit_softcapping = 30.0"});
}

// Trial 66.
TEST_F(RefusedCheckpoints, RopeByKindOfLayerAndInTwoPlaces) {
  const char* rope = "rope_parameters";
  expect_config("hybrid",
                [=](Json& c) {
                  c[rope] = {{"sliding_attention", c[rope]}};
                },
                {rope, "entries for sliding_attention", "none for full_attention"});
  expect_config("hybrid", [](Json& c) { c["partial_rotary_factor"] = 0.25; },
                {rope, "partial_rotary_factor = 0.5 differs from 0.25"});
  use("hybrid_yarn");
  edit_json(place / "model/config.json", [=](Json& c) {
    c[rope] = {{"full_attention", c[rope]}, {"sliding_attention", {{"rope_theta", 1e6}}}};
  });
  EXPECT_THAT(place.succeed(2, "run -n -i deck.ini").out,
              HasSubstr("rope       yarn, theta 10000, factor 4, scale 1.13863, 8 dimensions"));
}

// Trial 47: YaRN that lacks a field, or stands where it would have no effect.
TEST_F(RefusedCheckpoints, IncompleteRopeIsNotGuessed) {
  const char* rope = "rope_parameters";
  expect_config("hybrid_yarn", [=](Json& c) { c[rope].erase("factor"); },
                {rope, "factor", "missing"});
  expect_config("hybrid_yarn", [=](Json& c) { c[rope].erase("original_max_position_embeddings"); },
                {rope, "original_max_position_embeddings", "missing"});
  expect_config("hybrid_yarn", [=](Json& c) { c[rope]["rope_type"] = "default"; },
                {rope, "factor", "rope_type"});
  expect_config("hybrid_yarn", [=](Json& c) { c[rope]["rope_type"] = "longrope"; },
                {"rope_type \"longrope\""});
  expect_config("hybrid_yarn", [=](Json& c) { c[rope]["beta_slow"] = 64; },
                {rope, "beta_fast = 32", "beta_slow = 64"});
  expect_config("hybrid_yarn", [=](Json& c) { c[rope]["attention_factor"] = -1; },
                {rope, "attention_factor", "-1"});
  expect_config("hybrid",
                [](Json& c) {
                  c["rope_scaling"] = {
                      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
                },
                {"rope_scaling", "differs", rope});
  expect_config("hybrid_tied_bf16",
                [=](Json& c) {
                  c[rope] = c["text_config"][rope];
                  c[rope]["rope_type"] = "yarn";
                  c[rope]["factor"] = 4.0;
                },
                {rope, "outside text_config"});
}

// Trial 47: what is computed with stands in the header.
TEST_F(RefusedCheckpoints, HeaderSaysWhichRopeIsUsed) {
  use("hybrid_yarn");
  // 0.1 ln(4) + 1, and 4 x 32 positions
  EXPECT_THAT(place.succeed(2, "run -n -i deck.ini").out,
              HasSubstr("rope       yarn, theta 10000, factor 4, scale 1.13863, 8 dimensions, good "
                        "for 128 tokens (longest here 118)"));
}

// Trials 62 and 63. Which kernels are chosen and why is tested with the choice itself.
TEST_F(RefusedCheckpoints, WrongMatrixProductsAreRefusedAtTheStart) {
  use("hybrid");
  expect_refused(place, "run -i deck.ini -d out", failed,
                 {"matrix products are wrong here", "OPENBLAS_CORETYPE"},
                 "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=" WRONG_BLAS);
}

TEST_F(RefusedCheckpoints, HeaderSaysWhichMatrixKernelsRunAndWarnsOfSlowOnes) {
  use("hybrid");
  const Outcome outcome = place.run(2, "run -n -i deck.ini", "OPENBLAS_CORETYPE=Prescott");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("kernels Prescott"));
  if (outcome.out.find("DYNAMIC_ARCH") == std::string::npos) GTEST_SKIP() << "one kernel set only";
  EXPECT_THAT(outcome.err, HasSubstr("warning: OPENBLAS_CORETYPE=Prescott is set"));
  EXPECT_THAT(outcome.err, HasSubstr("unset it"));
}

}  // namespace
}  // namespace longstraw::program
