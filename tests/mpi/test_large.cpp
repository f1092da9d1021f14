// Messages and files beyond 2 GiB (trial 50): what arrives is what was sent, and no single call of
// MPI or HDF5 moves more than 1 GiB. Takes up to 11 GiB of memory and 6 GiB of disk on 2 ranks.
#include "longstraw/comm/grid.hpp"
#include "longstraw/core/field.hpp"
#include "longstraw/io/checkpoint.hpp"
#include "longstraw/io/dump_folder.hpp"
#include "longstraw/io/file.hpp"
#include "longstraw/io/gradients.hpp"
#include "longstraw/io/hdf5.hpp"
#include "support/safetensors_file.hpp"
#include "support/temporary_folder.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace {

int64_t largest_call = 0;  // bytes, since a test began

void note(int64_t count, MPI_Datatype type) {
  int size = 0;
  PMPI_Type_size(type, &size);
  largest_call = std::max(largest_call, count * size);
}

using Transfer = herr_t(hid_t, hid_t, hid_t, hid_t, hid_t, const void*);

// The library's own function of this name, after noting what it will move.
Transfer* noted(const char* name, hid_t type, hid_t memory) {
  largest_call = std::max(largest_call, static_cast<int64_t>(H5Sget_select_npoints(memory)) *
                                            static_cast<int64_t>(H5Tget_size(type)));
  return reinterpret_cast<Transfer*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// These stand before the libraries' own.
extern "C" {
int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  note(count, type);
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  note(count, type);
  return PMPI_Irecv(data, count, type, from, tag, comm, request);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  note(count, type);
  return PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Allgather(const void* from, int sent, MPI_Datatype sent_type, void* to, int count,
                  MPI_Datatype type, MPI_Comm comm) {
  int ranks = 0;
  PMPI_Comm_size(comm, &ranks);
  note(int64_t{count} * ranks, type);
  return PMPI_Allgather(from, sent, sent_type, to, count, type, comm);
}
herr_t H5Dwrite(hid_t set, hid_t type, hid_t memory, hid_t file, hid_t list, const void* data) {
  return noted("H5Dwrite", type, memory)(set, type, memory, file, list, data);
}
herr_t H5Dread(hid_t set, hid_t type, hid_t memory, hid_t file, hid_t list, void* data) {
  return noted("H5Dread", type, memory)(set, type, memory, file, list, data);
}
}

namespace longstraw {
namespace {

using support::SafetensorsFile;
using support::TemporaryFolder;

constexpr int64_t kib = 1024, gib = int64_t{1} << 30;
constexpr std::array sizes = {2 * gib - kib, 2 * gib + kib, 5 * gib};

// A word for each place: any that is lost, moved or written twice shows.
uint64_t word_at(int64_t index) {
  const auto x = static_cast<uint64_t>(index + 1) * 0x9e3779b97f4a7c15;
  return x ^ (x >> 29);
}

Field words(Ledger& ledger, int64_t bytes) { return {ledger, "test", DType::float64, {bytes / 8}}; }

void fill(const Tensor& tensor, int64_t first = 0) {
  auto* at = reinterpret_cast<uint64_t*>(tensor.raw());
  for (int64_t i = 0; i < tensor.size(); ++i) at[i] = word_at(first + i);
}

int64_t wrong_words(const Tensor& tensor, int64_t first = 0) {
  const auto* at = reinterpret_cast<const uint64_t*>(tensor.raw());
  int64_t wrong = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) wrong += at[i] != word_at(first + i);
  return wrong;
}

class Large : public testing::Test {
 protected:
  Large() : grid(Grid::world()) { largest_call = 0; }
  void SetUp() override {
    if (grid.size() != 2) GTEST_SKIP() << "for 2 ranks";
  }
  void TearDown() override {
    if (grid.size() != 2) return;
    EXPECT_LE(largest_call, gib);
    EXPECT_GT(grid.max(largest_call), 0);
  }

  Ledger ledger;
  Grid grid;
};

class LargeSizes : public Large, public testing::WithParamInterface<int64_t> {};

TEST_P(LargeSizes, AllToAll) {
  const int64_t bytes = GetParam();
  const bool sends = grid.rank() == 0;
  const Field field = words(ledger, bytes);
  if (sends) fill(field);
  const std::array<int64_t, 2> none = {0, 0};
  const std::array<int64_t, 2> out = {0, sends ? bytes : 0}, in = {sends ? 0 : bytes, 0};
  if (sends)
    grid.all_to_all(nullptr, none, field.tensor().raw(), out);
  else
    grid.all_to_all(field.tensor().raw(), in, nullptr, none);
  EXPECT_EQ(largest_call, gib);  // so the calls are seen
  EXPECT_EQ(wrong_words(field), 0);
}

TEST_P(LargeSizes, GatheredRows) {
  const int64_t rows = GetParam() / 8;
  const std::array<int64_t, 2> parts = {rows, 5};
  const Field field = words(ledger, (rows + 5) * 8);
  const int64_t first = grid.rank() == 0 ? 0 : rows;
  const Tensor own = field.tensor().rows(first, first + parts[grid.rank()]);
  fill(own, first);
  grid.all_gather_rows(field, own, parts);
  EXPECT_EQ(wrong_words(field), 0);
}

TEST_P(LargeSizes, Broadcast) {
  const Field field = words(ledger, GetParam());
  if (grid.rank() == 1) fill(field);
  grid.broadcast(field.tensor().raw(), GetParam(), 1);
  EXPECT_EQ(wrong_words(field), 0);
}

TEST_P(LargeSizes, GradientFile) {
  const TemporaryFolder folder;
  const std::vector<NamedShape> list = {{"first", {GetParam() / 8}}, {"second", {3, 2}}};
  const std::string path = folder / "gradient-0.h5";
  // Numbers that a double holds exactly.
  const auto value_at = [](const std::string& name, int64_t i) {
    return static_cast<double>(word_at(i) >> 12) + (name == "second" ? 0.5 : 0.0);
  };
  write_gradients({.path = path, .mode = "exact", .step = 0}, list, grid, ledger, DType::float64,
                  [&](const std::string& name, Range elements, const Tensor& values) {
                    for (int64_t i = 0; i < elements.size(); ++i)
                      values.data<double>()[i] = value_at(name, elements.begin + i);
                    return true;
                  });
  int64_t wrong = 0, seen = 0;
  read_gradients(path, list, grid, ledger,
                 [&](const std::string& name, Range elements, const Tensor& values) {
                   for (int64_t i = 0; i < elements.size(); ++i, ++seen)
                     wrong += values.data<double>()[i] != value_at(name, elements.begin + i);
                 });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(seen, GetParam() / 8 + 6);
}

// A dump, checked and read back; the small part is held by rank 1, behind the large one.
TEST_P(LargeSizes, Dump) {
  const TemporaryFolder folder;
  const int64_t large = GetParam() / 8, small = 5;
  const int64_t first = grid.rank() == 0 ? 0 : large;
  const Field field = words(ledger, (grid.rank() == 0 ? large : small) * 8);
  fill(field, first);
  const auto list = [&](DumpFields& fields) {
    int64_t number = 1;
    fields.number("cursor/kind", number, {}, "what a dump has");
    const DumpPiece piece{.first = first, .values = field};
    fields.placed(
        {.path = "words", .type = DType::float64, .extents = {large + small}, .meaning = "words"},
        std::span(&piece, 1));
  };
  DumpFolder dumps(folder / "dumps", grid);
  EXPECT_GE(dumps.write(1, 1, list), (large + small) * 8);
  clear(field);
  DumpReader dump(dumps.latest().value(), grid);
  list(dump);
  EXPECT_EQ(wrong_words(field, first), 0);
}

std::string size_name(const testing::TestParamInfo<int64_t>& size) {
  constexpr const char* names[] = {"TwoGiBLess1KiB", "TwoGiBAnd1KiB", "FiveGiB"};
  return names[size.index];
}
INSTANTIATE_TEST_SUITE_P(, LargeSizes, testing::ValuesIn(sizes), size_name);

// Both ways at once, and a sum over more numbers than one call may move.
TEST_F(Large, BothWays) {
  const int64_t bytes = 2 * gib + kib;
  const Field from = words(ledger, bytes), to = words(ledger, bytes);
  const int other = 1 - grid.rank();
  fill(from, grid.rank() * bytes);
  std::array<int64_t, 2> each = {bytes, bytes};
  each[grid.rank()] = 0;
  grid.all_to_all(to.tensor().raw(), each, from.tensor().raw(), each);
  EXPECT_EQ(wrong_words(to, other * bytes), 0);
}

TEST_F(Large, Sum) {
  std::vector<double> values(gib / 8 + 3);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i) + grid.rank() * 0.25;
  grid.sum(values);
  int64_t wrong = 0;
  for (size_t i = 0; i < values.size(); ++i)
    wrong += values[i] != 2 * static_cast<double>(i) + 0.25;
  EXPECT_EQ(wrong, 0);
}

// A tensor of more than 2 GiB and what lies behind it, read in parts and written again.
TEST_F(Large, Checkpoint) {
  const TemporaryFolder folder;
  const int64_t elements = gib + kib;  // of two bytes
  folder.prepare([&] {
    std::filesystem::create_directory(folder / "in");
    support::put(folder / "in/config.json", "{}");
    const std::string header = nlohmann::json{
        {"big", {{"dtype", "BF16"}, {"shape", {elements}}, {"data_offsets", {0, 2 * elements}}}},
        {"last",
         {{"dtype", "F32"},
          {"shape", {2}},
          {"data_offsets",
           {2 * elements,
            2 * elements + 8}}}}}.dump();
    auto file = DiskFile::create(folder / "in/model.safetensors");
    file.write(SafetensorsFile::with_length(header));
    std::vector<uint16_t> part(elements / 1024);
    for (int64_t i = 0; i < 1024; ++i) {
      for (size_t j = 0; j < part.size(); ++j)  // without infinities and NaNs
        part[j] = static_cast<uint16_t>(word_at(i * std::ssize(part) + j) & 0x3fff);
      file.write(part.data(), std::ssize(part) * 2);
    }
    const std::array<float, 2> last = {1.5f, -2.5f};
    file.write(last.data(), sizeof last);
  });
  const auto source = Checkpoint::open(folder / "in", grid);
  write_checkpoint(folder / "out", source, grid, ledger, DType::float32,
                   {.mine = [&](const std::string& name) -> std::optional<Range> {
                      return grid.mine(source.at(name).elements());
                    },
                    .read = [&](const std::string& name, Range range,
                                const Tensor& values) { source.read(name, range, values); }});
  const auto a = DiskFile::open(folder / "in/model.safetensors");
  const auto b = DiskFile::open(folder / "out/model.safetensors");
  ASSERT_EQ(a.size(), b.size());
  std::vector<char> left(64 << 20), right(left.size());
  for (int64_t at = 0; at < a.size(); at += std::ssize(left)) {
    const int64_t bytes = std::min(std::ssize(left), a.size() - at);
    a.read(left.data(), bytes, at), b.read(right.data(), bytes, at);
    ASSERT_TRUE(std::equal(left.begin(), left.begin() + bytes, right.begin())) << at;
  }
}

}  // namespace
}  // namespace longstraw
