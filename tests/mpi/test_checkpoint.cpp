#include "longstraw/io/checkpoint.hpp"

#include "longstraw/core/field.hpp"
#include "longstraw/io/number_formats.hpp"
#include "reference/golden.hpp"
#include "support/errors.hpp"
#include "support/safetensors_file.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <random>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::expect_parts;
using support::get;
using support::put;
using support::refusal_of;
using support::SafetensorsFile;
using support::TemporaryFolder;

class CheckpointFolder : public testing::Test {
 protected:
  // Opens what `make` puts into an empty folder beside a config.json.
  template <class Make>
  support::Refusal refusal(Make&& make) {
    folder_.prepare([&] {
      fs::remove_all(model_);
      fs::create_directory(model_);
      put(model_ + "/config.json", "{}");
      make();
    });
    const auto found = refusal_of([&] { Checkpoint::open(model_, grid_); });
    EXPECT_TRUE(found.message.empty() || found.everywhere);
    return found;
  }
  // A copy of the golden case with two shards and an index, to be damaged.
  template <class Damage>
  support::Refusal damaged(Damage&& damage) {
    return refusal([&] {
      fs::copy(reference::Golden("hybrid_tied_bf16").model(), model_,
               fs::copy_options::overwrite_existing | fs::copy_options::recursive);
      damage();
    });
  }
  void write(const SafetensorsFile& file, const std::string& name = "model.safetensors") {
    put(model_ + "/" + name, file.text());
  }

  Grid grid_ = Grid::world();
  TemporaryFolder folder_;
  std::string model_ = folder_ / "model";
  const std::string first_ = "model-00001-of-00002.safetensors";
  const std::string second_ = "model-00002-of-00002.safetensors";
  const std::string index_ = "model.safetensors.index.json";
};

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

// Trial 21 and rounding: values in full precision come out nearest even, the rest byte for byte.
TEST_F(CheckpointFolder, WritesTheLayoutItRead) {
  const std::vector<std::string> companions = {"tokenizer.json", "chat_template.jinja",
                                               "additional_chat_templates/tool.jinja"};
  ASSERT_EQ(damaged([&] {
              fs::create_directories(model_ + "/additional_chat_templates");
              fs::create_directories(model_ + "/onnx");
              for (const auto& name : companions) put(model_ + "/" + name, "text of " + name);
              for (const char* name : {"pytorch_model.bin", "onnx/model.onnx", ".gitattributes"})
                put(model_ + "/" + name, "not wanted");
            }).message,
            "");
  const auto source = Checkpoint::open(model_, grid_);
  const auto value = [](int64_t i) { return 0.1 * static_cast<double>(i) - 3; };
  const auto trained = [](const std::string& name) {
    return name.find("language_model") != std::string::npos;
  };
  for (const DType type : {DType::float64, DType::float32}) {
    Ledger ledger;
    const Provide provide = [&](const std::string& name, Range part, const Tensor& values) {
      if (!trained(name)) return false;
      dispatch(type, [&]<class T>(T) {
        for (int64_t i = part.begin; i < part.end; ++i)
          values.data<T>()[i - part.begin] = static_cast<T>(value(i));
      });
      return true;
    };
    const std::string out = folder_ / "out";
    write_checkpoint(out + "/", source, grid_, ledger, type, provide);
    EXPECT_EQ(ledger.total().current, 0);
    const auto written = Checkpoint::open(out, grid_);
    EXPECT_EQ(written.files(), source.files());
    for (const auto& file : source.files())
      EXPECT_EQ(fs::file_size(out + "/" + file), fs::file_size(model_ + "/" + file));
    for (const auto& [name, tensor] : source.tensors()) {
      const auto& copy = written.at(name);
      EXPECT_EQ(copy.type, tensor.type);
      EXPECT_EQ(copy.offset, tensor.offset);
      std::vector<double> before(tensor.elements()), after(tensor.elements());
      source.read(name, {0, tensor.elements()},
                  Tensor(before.data(), DType::float64, {tensor.elements()}));
      written.read(name, {0, tensor.elements()},
                   Tensor(after.data(), DType::float64, {tensor.elements()}));
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        const double x = type == DType::float32 ? static_cast<float>(value(i)) : value(i);
        const double rounded =
            tensor.type == "BF16" ? from_bf16(to_bf16(x)) : static_cast<float>(x);
        ASSERT_EQ(after[i], trained(name) ? rounded : before[i]) << name << " " << i;
      }
    }
    for (const auto& name : companions) EXPECT_EQ(get(out + "/" + name), "text of " + name);
    for (const std::string name : {"config.json", index_.c_str()})
      EXPECT_EQ(get(out + "/" + name), get(model_ + "/" + name));
    for (const char* name : {"pytorch_model.bin", "onnx", ".gitattributes"})
      EXPECT_FALSE(fs::exists(out + "/" + name)) << name;
    EXPECT_FALSE(fs::exists(out + ".tmp") || fs::exists(out + ".old"));
    grid_.barrier();  // before the next round replaces what a slower rank still reads
  }
}

// A disk that fills up, played by a limit on the size of files: the older weights stay.
TEST_F(CheckpointFolder, AWriteThatBreaksOffSparesTheOlderWeights) {
  ASSERT_EQ(damaged([] {}).message, "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  const std::string out = folder_ / "out";
  const auto write = [&] {
    write_checkpoint(out, source, grid_, ledger, DType::float32,
                     [](const std::string&, Range, const Tensor&) { return false; });
  };
  write();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 60'000, .rlim_max = before.rlim_max};
  if (grid_.rank() == 0) ::setrlimit(RLIMIT_FSIZE, &small);
  const auto refused = refusal_of(write);
  if (grid_.rank() == 0) ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  grid_.barrier();
  expect_parts(refused.message, {"cannot write", out + ".tmp/" + first_});
  EXPECT_TRUE(refused.everywhere);
  EXPECT_FALSE(fs::exists(out + ".tmp"));
  for (const auto& file : source.files())
    EXPECT_EQ(get(out + "/" + file), get(model_ + "/" + file));
}

// More elements than one part holds, in reading and in writing.
TEST_F(CheckpointFolder, LargeTensorsGoInParts) {
  constexpr int64_t count = (int64_t{1} << 22) + 3;
  const auto value = [](int64_t i) { return static_cast<double>(i % 251) - 125; };
  ASSERT_EQ(refusal([&] {
              std::vector<double> values(count);
              for (int64_t i = 0; i < count; ++i) values[i] = value(i);
              write(SafetensorsFile().add("big", "BF16", {count}, values));
            }).message,
            "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  std::vector<Range> asked;
  write_checkpoint(folder_ / "out", source, grid_, ledger, DType::float32,
                   [&](const std::string&, Range part, const Tensor& values) {
                     asked.push_back(part);
                     for (int64_t i = part.begin; i < part.end; ++i)
                       values.data<float>()[i - part.begin] = static_cast<float>(2 * value(i));
                     return true;
                   });
  EXPECT_EQ(asked, (std::vector<Range>{{0, count - 3}, {count - 3, count}}));
  const Field values(ledger, "values", DType::float32, {count});
  Checkpoint::open(folder_ / "out", grid_).read("big", {0, count}, values);
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(values.tensor().data<float>()[i], 2 * value(i));
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

TEST_F(CheckpointFolder, AnUntrainedCopyIsByteForByte) {
  ASSERT_EQ(damaged([] {}).message, "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  const std::string out = folder_ / "copy";
  write_checkpoint(out, source, grid_, ledger, DType::float32,
                   [](const std::string&, Range, const Tensor&) { return false; });
  for (const auto& file : source.files())
    EXPECT_EQ(get(out + "/" + file), get(model_ + "/" + file));
}

TEST_F(CheckpointFolder, FailedWritesLeaveNothingAndSpareTheSource) {
  ASSERT_EQ(damaged([] {}).message, "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  const Provide nothing = [](const std::string&, Range, const Tensor&) { return false; };
  const auto write_to = [&](const std::string& out, const Provide& provide) {
    const auto refused =
        refusal_of([&] { write_checkpoint(out, source, grid_, ledger, DType::float32, provide); });
    EXPECT_TRUE(refused.everywhere);
    grid_.barrier();
    EXPECT_FALSE(fs::exists(out + ".tmp"));
    grid_.barrier();
    return refused.message;
  };
  expect_parts(write_to(model_, nothing), {"over the checkpoint", model_});
  folder_.prepare([&] { put(folder_ / "file", ""); });
  expect_parts(write_to(folder_ / "file/out", nothing), {"cannot prepare", "file/out"});
  EXPECT_EQ(get(model_ + "/" + first_),
            get(reference::Golden("hybrid_tied_bf16").model() + "/" + first_));
  // A shard that vanishes while it is being copied.
  folder_.prepare([&] { fs::resize_file(model_ + "/" + second_, 40'000); });
  expect_parts(write_to(folder_ / "out", nothing), {second_, "truncated"});
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

}  // namespace
}  // namespace longstraw
