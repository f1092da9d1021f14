// Datasets and lists in HDF5: what is written is read, what cannot be trusted is refused.
#include "longstraw/io/lists.hpp"

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace longstraw {
namespace {

using support::expect_parts;
using support::refusal_of;

class Flat : public testing::Test {
 protected:
  template <class T>
  std::string refusal(const std::string& path) const {
    const h5::File file = h5::open_file(path_);
    return refusal_of([&] { FlatReader<T>(file, path_, path); }).message;
  }
  // A dataset made by `how`, of `elements` that are never written.
  void make(hid_t type, hsize_t elements, const h5::Properties& how) const {
    const h5::File file = h5::create_file(path_);
    const h5::Space space(H5Screate_simple(1, &elements, nullptr), "space");
    h5::Dataset(H5Dcreate2(file, "x", type, space, H5P_DEFAULT, how, H5P_DEFAULT), "x");
  }
  static h5::Properties properties() { return {H5Pcreate(H5P_DATASET_CREATE), "how"}; }

  support::TemporaryFolder folder_;
  std::string path_ = folder_ / "a.h5";
};

TEST_F(Flat, ReadsAnyPartOfWhatWasWritten) {
  for (const int64_t size : {0, 1, 7, 8, 9, 100}) {
    std::vector<int32_t> values(size);
    std::iota(values.begin(), values.end(), -3);
    {
      const h5::File file = h5::create_file(path_);
      FlatWriter<int32_t> writer(file, "x", {"numbers", 8});
      for (int64_t at = 0; at < size; at += 5)
        writer.append(std::span(values).subspan(at, std::min<int64_t>(5, size - at)));
      EXPECT_EQ(writer.size(), size);
      writer.finish();
    }
    const h5::File file = h5::open_file(path_);
    const FlatReader<int32_t> reader(file, path_, "x");
    ASSERT_EQ(reader.size(), size);
    for (int64_t begin = 0; begin <= size; begin += 3) {
      std::vector<int32_t> part(size - begin);
      reader.read(begin, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), values.begin() + begin));
    }
  }
}

TEST_F(Flat, OtherDatasetsAreRefused) {
  make(H5T_STD_I64LE, 4, properties());
  expect_parts(refusal<int32_t>("x"),
               {path_ + ": dataset x is of another type - expected whole numbers of 32 bits"});
  expect_parts(refusal<double>("x"), {"expected floating-point numbers of 64 bits"});
  expect_parts(refusal<int64_t>("y"), {path_ + ": dataset y is missing"});
  expect_parts(refusal<int64_t>("y/z"), {"dataset y/z is missing"});
  // never written, and so not in the file
  expect_parts(refusal<int64_t>("x"), {"says it has 32 bytes, but 0 are in the file"});
  make(H5T_STD_U32LE, 4, properties());
  expect_parts(refusal<int32_t>("x"), {"another type"});
  const h5::File file = h5::create_file(path_);
  h5::Group(H5Gcreate2(file, "x", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), "x");
  const hsize_t extents[] = {2, 3};
  const h5::Space space(H5Screate_simple(2, extents, nullptr), "space");
  h5::Dataset(H5Dcreate2(file, "m", H5T_STD_I32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
              "m");
  EXPECT_NE(refusal<int32_t>("x"), "");
  expect_parts(refusal<int32_t>("m"), {"dataset m is no list"});
}

TEST_F(Flat, TextAttributesAreReadAsTheyWereWritten) {
  const h5::File file = h5::create_file(path_);
  for (const std::string text : {"", "a", "two words"}) {
    h5::write_attribute(file, "text " + text, text);
    EXPECT_EQ(h5::read_attribute(file, "text " + text), text);
  }
}

TEST_F(Flat, AttributesOfManyValuesAreRefused) {
  const h5::File file = h5::create_file(path_);
  const hsize_t many = 1000;
  const h5::Space space(H5Screate_simple(1, &many, nullptr), "space");
  h5::Attribute(H5Acreate2(file, "x", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), "x");
  expect_parts(refusal_of([&] { h5::read_integer_attribute(file, "x"); }).message,
               {"attribute x is not one value"});
}

TEST_F(Flat, SizesAreNotTrusted) {
  auto huge = properties();
  const hsize_t chunk = 1 << 20, larger = 5 << 20;
  H5Pset_chunk(huge, 1, &chunk);
  make(H5T_STD_I32LE, hsize_t{1} << 50, huge);
  expect_parts(refusal<int32_t>("x"), {"dataset x says it has", "0 are in the file"});
  make(H5T_STD_I32LE, hsize_t{1} << 57, huge);
  expect_parts(refusal<int32_t>("x"), {"dataset x says it has"});
  H5Pset_chunk(huge, 1, &larger);
  make(H5T_STD_I32LE, hsize_t{1} << 30, huge);
  expect_parts(refusal<int32_t>("x"), {"chunks of 5242880 elements"});
  auto filtered = properties();
  H5Pset_chunk(filtered, 1, &chunk);
  H5Pset_shuffle(filtered);
  make(H5T_STD_I32LE, chunk, filtered);
  expect_parts(refusal<int32_t>("x"), {"compressed or filtered"});
  auto elsewhere = properties();
  H5Pset_external(elsewhere, "/etc/passwd", 0, H5F_UNLIMITED);
  make(H5T_STD_I32LE, 5, elsewhere);
  expect_parts(refusal<int32_t>("x"), {"lies in another file"});
}

TEST_F(Flat, DamageIsFoundByItsChecksum) {
  {
    const h5::File file = h5::create_file(path_);
    FlatWriter<int64_t> writer(file, "x", {"numbers"});
    for (int64_t i = 0; i < 3000; ++i) writer.append(0x5a5a5a5a5a5a5a5a);
    writer.finish();
  }
  std::string bytes = support::get(path_);
  const size_t at = bytes.find(std::string(64, 'Z'));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 40] ^= 4;
  support::put(path_, bytes);
  const h5::File file = h5::open_file(path_);
  const FlatReader<int64_t> reader(file, path_, "x");
  std::vector<int64_t> values(3000);
  expect_parts(refusal_of([&] { reader.read(0, values); }).message,
               {path_ + ": dataset x: elements 0 to 2999 cannot be read"});
}

class Lists : public Flat {
 protected:
  // Three lists of five elements, at `offsets`.
  void put(const std::vector<int64_t>& offsets) const {
    const h5::File file = h5::create_file(path_);
    FlatWriter<double> values(file, "x", {"numbers"});
    values.append(std::vector<double>{0, 1, 2, 3, 4});
    values.finish();
    FlatWriter<int64_t> writer(file, "x_offsets", {"offsets"});
    writer.append(offsets);
    writer.finish();
  }
  std::string refusal_of_lists(Range which = {0, 3}) const {
    const h5::File file = h5::open_file(path_);
    return refusal_of([&] { ListReader<double>(file, path_, "x", 3).lists(which); }).message;
  }
};

TEST_F(Lists, AreReadAsTheyWereWritten) {
  {
    const h5::File file = h5::create_file(path_);
    ListWriter<int32_t> writer(file, "x", {"numbers", 3});
    writer.append(std::vector<int32_t>{1, 2});
    writer.append(std::vector<int32_t>{3});
    writer.end_list();
    writer.add_list({});
    writer.add_list(std::vector<int32_t>{4, 5, 6, 7});
    writer.finish();
  }
  const h5::File file = h5::open_file(path_);
  const ListReader<int32_t> reader(file, path_, "x", 3);
  const std::vector<std::vector<int32_t>> all = {{1, 2, 3}, {}, {4, 5, 6, 7}};
  EXPECT_EQ(reader.lists({0, 3}), all);
  EXPECT_EQ(reader.lists({1, 3}), (std::vector<std::vector<int32_t>>{all[1], all[2]}));
  EXPECT_TRUE(reader.lists({2, 2}).empty());
}

TEST_F(Lists, OffsetsAreNotTrusted) {
  put({0, 2, 2, 5});
  EXPECT_EQ(refusal_of_lists(), "");
  const std::string file = path_ + ": dataset x_offsets";
  const std::vector<std::pair<std::vector<int64_t>, std::string>> faults = {
      {{0, 3, 2, 5}, "[2] is 2, below the one before it, 3"},
      {{0, -1, 2, 5}, "[1] is -1, below the one before it, 0"},
      {{-2, 1, 2, 5}, "[0] is -2, expected 0"},
      {{1, 1, 2, 5}, "[0] is 1, expected 0"},
      {{0, 1, 2, 6}, "[3] is 6, beyond the elements, of which there are 5"},
      {{0, 1, int64_t{1} << 60, int64_t{1} << 61}, "[2] is 1152921504606846976, beyond"},
      {{0, 1, 2, 4}, "[3] is 4, but the elements are 5"},
      {{0, 1, 5}, " has 3 elements, expected 4"},
      {{0, 1, 2, 3, 5}, " has 5 elements, expected 4"},
      {{}, " is empty"}};
  for (const auto& [offsets, part] : faults) {
    put(offsets);
    expect_parts(refusal_of_lists(), {file + part});
  }
  put({0, 1, -7, 5});
  expect_parts(refusal_of_lists({2, 3}), {file + "[2] is -7, outside the elements 0 to 5"});
}

}  // namespace
}  // namespace longstraw
