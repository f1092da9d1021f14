// Writing of checkpoints.
#include "longstraw/core/field.hpp"
#include "longstraw/io/checkpoint.hpp"
#include "longstraw/io/number_formats.hpp"
#include "mpi/checkpoint_folder.hpp"
#include "reference/golden.hpp"
#include "support/mounted.hpp"
#include "support/safetensors_file.hpp"

#include <sys/resource.h>

#include <cmath>
#include <csignal>

namespace longstraw {
namespace {

namespace fs = std::filesystem;
using support::expect_parts;
using support::get;
using support::Mounted;
using support::put;
using support::refusal_of;
using support::SafetensorsFile;

using CheckpointWriting = support::CheckpointFolder;

// Of no tensor.
const NewValues no_values{
    .mine = [](const std::string&) { return std::nullopt; },
    .read = [](const std::string&, Range, const Tensor&) { ADD_FAILURE() << "not to be read"; }};

// Element i of every tensor for which `trained` holds is value(i), each rank its part of it.
template <class Trained, class Value>
NewValues new_values(const Grid& grid, const Checkpoint& source, Trained trained, Value value) {
  return {.mine = [=, &source](const std::string& name) -> std::optional<Range> {
            if (!trained(name)) return std::nullopt;
            return grid.mine(source.at(name).elements());
          },
          .read =
              [=, &source](const std::string& name, Range part, const Tensor& values) {
                const Range own = grid.mine(source.at(name).elements());
                EXPECT_TRUE(own.begin <= part.begin && part.end <= own.end) << name;
                dispatch(values.type(), [&]<class T>(T) {
                  for (int64_t i = part.begin; i < part.end; ++i)
                    values.data<T>()[i - part.begin] = static_cast<T>(value(i));
                });
              }};
}

// Trial 21 and rounding: values in full precision come out nearest even, the rest byte for byte.
TEST_F(CheckpointWriting, WritesTheLayoutItRead) {
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
    const std::string out = folder_ / "out";
    write_checkpoint(out + "/", source, grid_, ledger, type,
                     new_values(grid_, source, trained, value));
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
TEST_F(CheckpointWriting, AWriteThatBreaksOffSparesTheOlderWeights) {
  ASSERT_EQ(damaged([] {}).message, "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  const std::string out = folder_ / "out";
  const auto write = [&] {
    write_checkpoint(out, source, grid_, ledger, DType::float32, no_values);
  };
  write();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 60'000, .rlim_max = before.rlim_max};
  // The last rank's part; one rank alone finds it when the files are laid out.
  const bool last = grid_.rank() == grid_.size() - 1;
  if (last) ::setrlimit(RLIMIT_FSIZE, &small);
  const auto refused = refusal_of(write);
  if (last) ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  grid_.barrier();
  expect_parts(refused.message,
               {grid_.size() > 1 ? "cannot write" : "its size", out + ".tmp/" + first_});
  EXPECT_TRUE(refused.everywhere);
  EXPECT_FALSE(fs::exists(out + ".tmp"));
  for (const auto& file : source.files())
    EXPECT_EQ(get(out + "/" + file), get(model_ + "/" + file));
}

// The older weights stay there as well.
TEST_F(CheckpointWriting, AFullDiskIsFoundBeforeWeightsAreWritten) {
  ASSERT_EQ(damaged([] {}).message, "");
  std::optional<Mounted> disk;
  folder_.prepare([&] { disk.emplace(folder_ / "disk", support::small_disk("400k")); });
  if (grid_.max(int64_t{disk && *disk}) == 0) GTEST_SKIP() << "mounting is not allowed here";
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  const std::string out = folder_ / "disk/out";
  const auto write = [&](const StoredAs as) {
    return refusal_of([&] {
      write_checkpoint(out, source, grid_, ledger, {DType::float64, as}, no_values);
    });
  };
  EXPECT_EQ(write(StoredAs::source).message, "");
  const auto refused = write(StoredAs::computed);
  expect_parts(refused.message, {"not enough room", out, "bytes needed"});
  EXPECT_TRUE(refused.everywhere);
  EXPECT_FALSE(fs::exists(out + ".tmp"));
  for (const auto& file : source.files())
    EXPECT_EQ(get(out + "/" + file), get(model_ + "/" + file));
  folder_.prepare([&] { disk.reset(); });
}

// More elements than one part holds, in reading and in writing.
TEST_F(CheckpointWriting, LargeTensorsGoInParts) {
  constexpr int64_t count = 3 * (int64_t{1} << 21) + 3;
  const auto value = [](int64_t i) { return static_cast<double>(i % 251) - 125; };
  ASSERT_EQ(refusal([&] {
              std::vector<double> values(count);
              for (int64_t i = 0; i < count; ++i) values[i] = value(i);
              write(SafetensorsFile().add("big", "BF16", {count}, values));
            }).message,
            "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  int64_t asked = 0, largest = 0;
  NewValues values = new_values(
      grid_, source, [](const auto&) { return true; }, [&](int64_t i) { return 2 * value(i); });
  write_checkpoint(
      folder_ / "out", source, grid_, ledger, DType::float32,
      {.mine = values.mine, .read = [&](const std::string& name, Range part, const Tensor& into) {
         asked += part.size(), largest = std::max(largest, part.size());
         values.read(name, part, into);
       }});
  EXPECT_EQ(asked, grid_.mine(count).size());
  EXPECT_LE(largest, int64_t{1} << 21);
  const Field read(ledger, "values", DType::float32, {count});
  Checkpoint::open(folder_ / "out", grid_).read("big", {0, count}, read);
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(read.tensor().data<float>()[i], 2 * value(i));
}

// Scalars, nothing at all, fewer elements than ranks, and elements that one rank gives alone, of
// changed types and with overflows: the same bytes from any number of ranks.
TEST_F(CheckpointWriting, AllRanksWriteWhatOneWrites) {
  ASSERT_EQ(refusal([&] {
              write(SafetensorsFile()
                        .add("scalar", "F32", {}, {1})
                        .add("empty", "BF16", {0, 3}, {})
                        .add("two", "F16", {2}, {1, 2})
                        .add("many", "BF16", {5, 7}, std::vector<double>(35, 1.0))
                        .add("copied", "I64", {2}, {3, 4})
                        .add("last", "F32", {11}, std::vector<double>(11, 2.0)));
            }).message,
            "");
  const auto source = Checkpoint::open(model_, grid_);
  const auto value = [](int64_t i) { return i == 1 ? 1e6 : 0.3 * static_cast<double>(i); };
  const auto trained = [](const std::string& name) { return name != "copied"; };
  const Grid alone(MPI_COMM_SELF);
  for (const StoredAs as : {StoredAs::source, StoredAs::computed}) {
    Ledger ledger;
    const WriteType type{DType::float64, as};
    NewValues all = new_values(grid_, source, trained, value);
    const auto mine = all.mine;
    // The last rank has all of one tensor.
    all.mine = [&](const std::string& name) {
      const bool last = grid_.rank() == grid_.size() - 1;
      return name == "scalar" ? Range{0, last ? 1 : 0} : mine(name);
    };
    all.read = [&](const std::string& name, Range part, const Tensor& into) {
      // Trial 71: what a kill would leave now.
      expect_parts(refusal_of([&] { Checkpoint::open(folder_ / "all.tmp", alone); }).message,
                   {"no folder with a config.json"});
      new_values(alone, source, trained, value).read(name, part, into);
    };
    const std::string single = folder_ / str("single-{}", grid_.rank());
    write_checkpoint(folder_ / "all", source, grid_, ledger, type, all);
    write_checkpoint(single, source, alone, ledger, type,
                     new_values(alone, source, trained, value));
    for (const char* name : {"model.safetensors", "config.json"})
      EXPECT_EQ(get(folder_ / "all/" + name), get(single + "/" + name));
    EXPECT_FALSE(fs::exists(folder_ / "all/config.json.tmp"));
    grid_.barrier();
  }
}

TEST_F(CheckpointWriting, ElementsThatNoRankGivesAreFound) {
  ASSERT_EQ(damaged([] {}).message, "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  const auto every = [](const std::string&) { return true; };
  NewValues values = new_values(grid_, source, every, [](int64_t) { return 1.0; });
  const auto mine = values.mine;
  values.mine = [&](const std::string& name) {
    Range own = *mine(name);
    if (grid_.rank() == 0 && name.ends_with("A_log")) --own.end;
    return std::optional(own);
  };
  const auto refused = refusal_of(
      [&] { write_checkpoint(folder_ / "out", source, grid_, ledger, DType::float32, values); });
  expect_parts(refused.message, {"A_log", "ranks gave"});
  EXPECT_TRUE(refused.everywhere);
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

// Trial 68.
TEST_F(CheckpointWriting, ShardsNamedAfterTheWholeFileAreWrittenAlike) {
  const std::vector<std::string> names = {"model.safetensors-00001-of-00002.safetensors",
                                          "model.safetensors-00002-of-00002.safetensors"};
  for (const bool indexed : {true, false}) {
    ASSERT_EQ(refusal([&] {
                write(SafetensorsFile().add("a", "F32", {4}, {1, 2, 3, 4}), names[0]);
                write(SafetensorsFile().add("b", "BF16", {2}, {1, 2}), names[1]);
                if (indexed)
                  put(model_ + "/" + index_,
                      str(R"({{"weight_map": {{"a": "{}", "b": "{}"}}}})", names[0], names[1]));
              }).message,
              "");
    const auto source = Checkpoint::open(model_, grid_);
    EXPECT_EQ(source.files(), names);
    Ledger ledger;
    const std::string out = folder_ / "out";
    write_checkpoint(out, source, grid_, ledger, DType::float32,
                     new_values(
                         grid_, source, [](const auto& name) { return name == "b"; },
                         [](int64_t i) { return static_cast<double>(8 * i); }));
    EXPECT_EQ(get(out + "/" + names[0]), get(model_ + "/" + names[0]));
    EXPECT_EQ(get(out + "/" + names[1]), SafetensorsFile().add("b", "BF16", {2}, {0, 8}).text());
    EXPECT_EQ(fs::exists(out + "/" + index_), indexed);
    EXPECT_EQ(Checkpoint::open(out, grid_).files(), names);
    grid_.barrier();
  }
}

TEST_F(CheckpointWriting, AnUntrainedCopyIsByteForByte) {
  ASSERT_EQ(damaged([] {}).message, "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  const std::string out = folder_ / "copy";
  write_checkpoint(out, source, grid_, ledger, DType::float32, no_values);
  for (const auto& file : source.files())
    EXPECT_EQ(get(out + "/" + file), get(model_ + "/" + file));
}

TEST_F(CheckpointWriting, FailedWritesLeaveNothingAndSpareTheSource) {
  ASSERT_EQ(damaged([] {}).message, "");
  const auto source = Checkpoint::open(model_, grid_);
  Ledger ledger;
  const auto write_to = [&](const std::string& out) {
    const auto refused = refusal_of(
        [&] { write_checkpoint(out, source, grid_, ledger, DType::float32, no_values); });
    EXPECT_TRUE(refused.everywhere);
    grid_.barrier();
    EXPECT_FALSE(fs::exists(out + ".tmp"));
    grid_.barrier();
    return refused.message;
  };
  expect_parts(write_to(model_), {"over the checkpoint", model_});
  folder_.prepare([&] { put(folder_ / "file", ""); });
  expect_parts(write_to(folder_ / "file/out"), {"cannot prepare", "file/out"});
  EXPECT_EQ(get(model_ + "/" + first_),
            get(reference::Golden("hybrid_tied_bf16").model() + "/" + first_));
  // A shard that vanishes while it is being copied.
  folder_.prepare([&] { fs::resize_file(model_ + "/" + second_, 40'000); });
  expect_parts(write_to(folder_ / "out"), {second_, "truncated"});
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

}  // namespace
}  // namespace longstraw
