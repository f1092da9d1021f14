#include "longstraw/io/checkpoint.hpp"

#include "mpi/checkpoint_folder.hpp"
#include "reference/golden.hpp"
#include "support/safetensors_file.hpp"

#include <sys/stat.h>

#include <random>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::CheckpointFolder;
using support::expect_parts;
using support::get;
using support::put;
using support::refusal_of;
using support::SafetensorsFile;

TEST_F(CheckpointFolder, IsKnownOnAllRanks) {
  const reference::Golden golden("hybrid_tied_bf16");
  const auto checkpoint = Checkpoint::open(golden.model(), grid_);
  EXPECT_EQ(checkpoint.files(), (std::vector<std::string>{first_, second_}));
  EXPECT_THAT(checkpoint.config(), testing::HasSubstr("qwen3_5"));
  const auto& tensor = checkpoint.at("model.language_model.embed_tokens.weight");
  EXPECT_EQ(tensor.type, "BF16");
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{96, 32}));
  EXPECT_EQ(tensor.bytes, 2 * 96 * 32);
  EXPECT_EQ(checkpoint.at("model.language_model.layers.0.linear_attn.A_log").type, "F32");
  const double count = static_cast<double>(checkpoint.tensors().size());
  for (double other : grid_.gather(count)) EXPECT_EQ(other, count);
  expect_parts(refusal_of([&] { checkpoint.at("nothing"); }).message, {"nothing"});
}

// The type a float64 program reads is exact in every stored type.
TEST_F(CheckpointFolder, EveryTypeIsReadInBothComputeTypesAndInParts) {
  const std::vector<double> values = {0.0, -1.5, 3.0, 65504.0, 0x1p-14, -0.25};
  ASSERT_EQ(refusal([&] {
              SafetensorsFile file;
              for (const char* type : {"F64", "F32", "F16"}) file.add(type, type, {3, 2}, values);
              file.add("BF16", "BF16", {3, 2}, {0.0, -1.5, 3.0, 65280.0, 0x1p-14, -0.25});
              file.add("I64", "I64", {2}, {1, 2});
              file.add("scalar", "F32", {}, {7});
              file.add("empty", "F32", {0, 4}, {});
              file.add("third", "F64", {1}, {1.0 / 3});
              write(file);
            }).message,
            "");
  const auto checkpoint = Checkpoint::open(model_, grid_);
  double wide[6];
  float narrow[6];
  for (const std::string type : {"F64", "F32", "F16", "BF16"}) {
    checkpoint.read(type, {0, 6}, Tensor(wide, DType::float64, {6}));
    checkpoint.read(type, {1, 3}, Tensor(narrow, DType::float32, {2}));
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(wide[i], type == "BF16" && i == 3 ? 65280.0 : values[i]) << type;
    EXPECT_EQ(narrow[0], -1.5f);
    EXPECT_EQ(narrow[1], 3.0f);
    checkpoint.read(type, {6, 6}, Tensor(wide, DType::float64, {0}));
  }
  checkpoint.read("scalar", {0, 1}, Tensor(wide, DType::float64, {1}));
  EXPECT_EQ(wide[0], 7);
  checkpoint.read("third", {0, 1}, Tensor(narrow, DType::float32, {1}));
  EXPECT_EQ(narrow[0], 1.0f / 3);
  EXPECT_EQ(checkpoint.at("empty").elements(), 0);
  expect_parts(refusal_of([&] {
                 checkpoint.read("I64", {0, 2}, Tensor(wide, DType::float64, {2}));
               }).message,
               {"I64", "convert"});
}

// Trial 19.
TEST_F(CheckpointFolder, TruncatedShardIsRefused) {
  const auto refused = damaged([&] {
    const std::string path = model_ + "/" + second_;
    fs::resize_file(path, fs::file_size(path) - 1024);
  });
  expect_parts(refused.message, {second_, "truncated", "94318 bytes"});
  EXPECT_EQ(refused.status, 1);
}

// Trial 20.
TEST_F(CheckpointFolder, MissingShardIsRefused) {
  expect_parts(damaged([&] { fs::remove(model_ + "/" + first_); }).message,
               {index_, "missing", first_});
  expect_parts(damaged([&] {
                 fs::remove(model_ + "/" + first_);
                 fs::remove(model_ + "/" + index_);
               }).message,
               {"1 of 2 files", "model-*-of-00002.safetensors"});
  expect_parts(damaged([&] {
                 for (const auto& file : {first_, second_, index_}) fs::remove(model_ + "/" + file);
               }).message,
               {"holds no weights"});
}

// Trial 21.
TEST_F(CheckpointFolder, IndexMustAgreeWithTheShards) {
  const auto with_index = [&](const std::string& from, const std::string& to) {
    return damaged([&] {
             std::string text = get(model_ + "/" + index_);
             const auto at = text.find(from);
             ASSERT_NE(at, std::string::npos);
             put(model_ + "/" + index_, text.replace(at, from.size(), to));
           })
        .message;
  };
  expect_parts(with_index("layers.0.mlp.up_proj", "layers.0.mlp.upper"),
               {index_, "layers.0.mlp.upper.weight", "in no file"});
  expect_parts(with_index("up_proj.weight\": \"model-00001", "up_proj.weight\": \"model-00002"),
               {"up_proj.weight", second_, "in " + first_});
  expect_parts(with_index("model-00001-of-00002.safetensors", "../other.safetensors"),
               {"'../other.safetensors'", "no file of this folder"});
  expect_parts(with_index("\"weight_map\"", "\"weights\""), {index_, "weight_map"});
  expect_parts(with_index("{", ""), {index_, "no valid JSON"});
  expect_parts(with_index("{", "{\"x\": " + std::string(200'000, '[')), {index_, "nested"});
  expect_parts(with_index("\"weight_map\": {", "\"weight_map\": {\"a\": \"b\", \"a\": \"c\", "),
               {index_, "key \"a\" is given twice"});
}

TEST_F(CheckpointFolder, ShardsWithoutIndexAndExtraTensorsAreFine) {
  EXPECT_EQ(damaged([&] { fs::remove(model_ + "/" + index_); }).message, "");
  EXPECT_EQ(refusal([&] {
              write(SafetensorsFile().add("a", "F32", {1}, {1}),
                    "model.safetensors-00001-of-00001.safetensors");
            }).message,
            "");
}

TEST_F(CheckpointFolder, NamesInTwoShardsAreRefused) {
  expect_parts(refusal([&] {
                 write(SafetensorsFile().add("a", "F32", {1}, {1}), first_);
                 write(SafetensorsFile().add("a", "F32", {1}, {2}), second_);
               }).message,
               {"tensor a", first_, second_});
  expect_parts(refusal([&] {
                 write(SafetensorsFile().add("a", "F32", {1}, {1}), first_);
                 write(SafetensorsFile().add("b", "F32", {1}, {2}),
                       "other-00001-of-00001.safetensors");
               }).message,
               {"different sets"});
}

TEST_F(CheckpointFolder, DamagedFilesAreRefused) {
  const SafetensorsFile good = SafetensorsFile().add("a", "F32", {2}, {1, 2});
  const auto header = [&](const std::string& json, int64_t data_bytes = 8) {
    return refusal([&] {
             put(model_ + "/model.safetensors",
                 SafetensorsFile::with_length(json) + std::string(data_bytes, 'x'));
           })
        .message;
  };
  const auto entry = [](const std::string& type, const std::string& shape,
                        const std::string& offsets) {
    return R"({"a": {"dtype": ")" + type + R"(", "shape": )" + shape + R"(, "data_offsets": )" +
           offsets + "}}";
  };
  EXPECT_EQ(header(entry("F32", "[2]", "[0, 8]")), "");
  EXPECT_EQ(header("{}", 0), "");
  expect_parts(header(entry("F32", "[2]", "[0, 8]"), 9), {"1 bytes follow the last tensor"});
  expect_parts(header("{}", 5), {"5 bytes follow"});
  expect_parts(header(entry("F32", "[2]", "[0, 8]"), 7), {"truncated"});
  expect_parts(header(entry("F32", "[2]", "[8, 0]")), {"data_offsets [8,0]"});
  expect_parts(header(entry("F32", "[2]", "[0, 8, 9]")), {"data_offsets"});
  expect_parts(header(entry("F32", "[2]", "[0, 18446744073709551615]")), {"no count"});
  expect_parts(header(entry("F32", "[2]", "[0, 9223372036854775807]")), {"truncated"});
  expect_parts(header(entry("F32", "[3]", "[0, 8]")), {"8 bytes", "need 12"});
  expect_parts(header(entry("F32", "[-2]", "[0, 8]")), {"-2", "no count"});
  expect_parts(header(entry("F32", "[2.0]", "[0, 8]")), {"no count"});
  expect_parts(header(entry("F32", "[4611686018427387904, 4]", "[0, 8]")), {"beyond 64 bits"});
  expect_parts(header(entry("F32", "[4611686018427387904, 4, 0]", "[0, 0]"), 0), {"64 bits"});
  expect_parts(header(entry("F4", "[3]", "[0, 1]"), 1), {"last byte"});
  expect_parts(header(entry("F99", "[2]", "[0, 8]")), {"unknown type F99"});
  expect_parts(header(R"({"a": {"dtype": "F32", "shape": [2]}})"), {"lacks"});
  expect_parts(header(R"({"a": 3})"), {"tensor a"});
  expect_parts(header("[1]"), {"no JSON object"});
  expect_parts(header("{\"a\""), {"no valid JSON"});
  expect_parts(header(std::string(3000, '[') + std::string(3000, ']')), {"nested"});
  const std::string f32 = R"("dtype": "F32", "shape": [1], "data_offsets": )";
  expect_parts(header("{\"a\": {" + f32 + "[0, 4]}, \"a\": {" + f32 + "[4, 8]}}"),
               {"key \"a\" is given twice"});
  expect_parts(header("{\"a\": {" + f32 + "[0, 4], \"dtype\": \"I32\"}}", 4),
               {"key \"dtype\" is given twice"});
  expect_parts(header("{\"a\": {" + f32 + "[0, 4]}, \"b\": {" + f32 + "[2, 6]}}", 6),
               {"tensor b overlaps"});
  expect_parts(header("{\"a\": {" + f32 + "[0, 4]}, \"b\": {" + f32 + "[6, 10]}}", 10),
               {"2 bytes before tensor b"});
  const auto file = [&](const std::string& text) {
    return refusal([&] { put(model_ + "/model.safetensors", text); }).message;
  };
  expect_parts(file(""), {"too few"});
  expect_parts(file("1234567"), {"too few"});
  expect_parts(file("\xff\xff\xff\xff\xff\xff\xff\xff{}"), {"header of", "more than"});
  expect_parts(file(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
               {"header ends at byte 24", "10 bytes"});
  expect_parts(file("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
               {"git lfs pull"});
  // Every prefix of a good file is refused.
  for (size_t cut = 0; cut < good.text().size(); cut += 5)
    EXPECT_NE(file(good.text().substr(0, cut)), "") << cut;
  EXPECT_EQ(file(good.text()), "");
}

// Damaged bytes anywhere in the header are refused, or leave a file whose tensors can be read.
TEST_F(CheckpointFolder, AnyDamageIsAnErrorOrNone) {
  const std::string good = SafetensorsFile()
                               .add("a", "F32", {2, 3}, {1, 2, 3, 4, 5, 6})
                               .add("b", "BF16", {4}, {1, 2, 3, 4})
                               .add("c", "F64", {}, {1})
                               .text();
  std::mt19937 random(9);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = good;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits)
      text[random() % text.size()] = "0123456789[]{},:\"\xff"[random() % 18];
    const bool bad = !refusal([&] { put(model_ + "/model.safetensors", text); }).message.empty();
    refused += bad;
    if (bad) continue;
    const auto checkpoint = Checkpoint::open(model_, grid_);
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      ASSERT_LE(tensor.elements(), 16);
      double values[16];
      const Tensor into(values, DType::float64, {tensor.elements()});
      refusal_of([&] { checkpoint.read(name, {0, tensor.elements()}, into); });
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_LT(refused, 400);
}

TEST_F(CheckpointFolder, MissingFolderOrConfigIsRefused) {
  expect_parts(refusal_of([&] { Checkpoint::open(folder_ / "none", grid_); }).message,
               {folder_ / "none", "[model] checkpoint"});
  expect_parts(refusal([&] { fs::remove(model_ + "/config.json"); }).message, {"config.json"});
}

// Opening a pipe would wait for somebody to write to it.
TEST_F(CheckpointFolder, WhatIsNoFileIsRefused) {
  const auto replaced = [&](auto&& make) {
    return damaged([&] {
             fs::remove(model_ + "/" + second_);
             make(model_ + "/" + second_);
           })
        .message;
  };
  expect_parts(replaced([](const auto& path) { ::mkfifo(path.c_str(), 0600); }),
               {second_, "no regular file"});
  expect_parts(replaced([](const auto& path) { fs::create_directory(path); }),
               {second_, "no regular file"});
}

// Offsets beyond 2^31 elements and 2^32 bytes, in a file that is mostly a hole.
TEST_F(CheckpointFolder, OffsetsOfLargeFilesAreKept) {
  constexpr int64_t count = (int64_t{1} << 31) + 8;
  ASSERT_EQ(refusal([&] {
              const std::string path = model_ + "/model.safetensors";
              const std::string header = SafetensorsFile::with_length(str(
                  R"({{"big": {{"dtype": "BF16", "shape": [2, {}], "data_offsets": [0, {}]}}}})",
                  count / 2, 2 * count));
              put(path, header);
              fs::resize_file(path, header.size() + 2 * count);
              std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
              file.seekp(-16, std::ios::end);
              for (const char* pattern : {"\x80\x3f", "\x00\x40"}) file.write(pattern, 2);
            }).message,
            "");
  const auto checkpoint = Checkpoint::open(model_, grid_);
  EXPECT_EQ(checkpoint.at("big").elements(), count);
  float values[4];
  checkpoint.read("big", {count - 10, count - 6}, Tensor(values, DType::float32, {4}));
  const float expected[] = {0, 0, 1, 2};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values[i], expected[i]);
}

}  // namespace
}  // namespace longstraw
