// Files that call themselves dumps and were made by others: what a reader would take for more than
// it has room for is refused before it is read.
#include "longstraw/io/dump_file.hpp"

#include "longstraw/io/dump_description.hpp"
#include "support/errors.hpp"
#include "support/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>

namespace longstraw {
namespace {

using support::expect_parts;
using Extents = std::vector<hsize_t>;

class ForeignDump : public testing::Test {
 protected:
  h5::File begin() {
    h5::File file = h5::create_file(path_);
    h5::write_attribute(file, "program", "other");
    h5::write_attribute(file, "format", dump_format);
    return file;
  }

  // A dataset `x` of no extents (nothing), one value ({}) or many, of which none are stored unless
  // `stored`.
  static h5::Dataset add(const h5::File& file, hid_t type, const std::optional<Extents>& extents,
                         bool stored = false) {
    const h5::Properties properties(H5Pcreate(H5P_DATASET_CREATE), "properties");
    if (stored) h5::check_h5(H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY), "properties");
    const h5::Space space(!extents           ? H5Screate(H5S_NULL)
                          : extents->empty() ? H5Screate(H5S_SCALAR)
                                             : H5Screate_simple(static_cast<int>(extents->size()),
                                                                extents->data(), nullptr),
                          "space");
    h5::Dataset set(H5Dcreate2(file, "x", type, space, H5P_DEFAULT, properties, H5P_DEFAULT), "x");
    h5::write_attribute(set, "checksum", int64_t{0});
    return set;
  }

  std::string refusal(const std::function<void(const h5::File&)>& fill) {
    {
      const h5::File file = begin();
      fill(file);
      h5::write_attribute(file, "metadata_checksum", int64_t{0});
    }
    return support::refusal_of([&] { DumpFileReader{path_}; }).message;
  }

  // A reader of a file whose description is right.
  DumpFileReader opened(const std::function<void(const h5::File&)>& fill) {
    {
      const h5::File file = begin();
      fill(file);
      h5::write_attribute(file, "metadata_checksum", static_cast<int64_t>(described_sum(file)));
    }
    return DumpFileReader(path_);
  }

  support::TemporaryFolder folder_;
  std::string path_ = folder_ / "dump.h5";
};

h5::Type text_of(size_t bytes) {
  h5::Type type(H5Tcopy(H5T_C_S1), "type");
  h5::check_h5(H5Tset_size(type, bytes), "type");
  return type;
}

TEST_F(ForeignDump, WhatIsNotThereIsNotReadFor) {
  const hsize_t large = hsize_t{1} << 40;
  const std::vector<Extents> many = {{large}, {3}, {large, large, large}, {large, large, 0}};
  for (const Extents& extents : many)
    expect_parts(
        refusal([&](const h5::File& file) { add(file, H5T_NATIVE_FLOAT, extents); }),
        {path_, "dataset x", str("{}", extents.size() > 1 ? "has extents" : "does not hold")});
  EXPECT_THAT(refusal([](const h5::File& file) { add(file, H5T_NATIVE_FLOAT, Extents{3}, true); }),
              testing::HasSubstr("do not match their checksum"));
}

TEST_F(ForeignDump, NumbersAndTextsAreSingle) {
  const std::vector<std::pair<h5::Type (*)(), Extents>> kinds = {
      {[] { return h5::Type(H5Tcopy(H5T_NATIVE_INT64), "type"); }, {100}},
      {[] { return h5::Type(H5Tcopy(H5T_NATIVE_INT32), "type"); }, {}},
      {[] { return text_of(1); }, {100}},
      {[] { return text_of(H5T_VARIABLE); }, {}},
      {[] { return h5::Type(H5Tvlen_create(H5T_NATIVE_INT64), "type"); }, {}}};
  for (const auto& [type, extents] : kinds)
    expect_parts(refusal([&](const h5::File& file) { add(file, type(), extents, true); }),
                 {path_, "dataset x is neither a text, a number nor an array"});
}

TEST_F(ForeignDump, KindsAreNotTakenForEachOther) {
  const auto array = opened([](const h5::File& file) {
    add(file, H5T_NATIVE_DOUBLE, Extents{3, 5}, true);
  });
  const auto refused = [](auto&& act) { return support::refusal_of(act).message; };
  EXPECT_THAT(refused([&] { (void)array.number("x"); }), testing::HasSubstr("x is no number"));
  EXPECT_THAT(refused([&] { (void)array.text("x"); }), testing::HasSubstr("x is no text"));
  EXPECT_THAT(refused([&] { (void)array.numbers("x"); }), testing::HasSubstr("no list of numbers"));
  std::array<double, 4> to{};
  const Tensor four(to.data(), DType::float64, {4});
  array.read("x", 11, four);
  for (const int64_t first : {int64_t{12}, int64_t{-1}, int64_t{INT64_MAX}})
    EXPECT_THAT(refused([&] { array.read("x", first, four); }), testing::HasSubstr("15 are there"));
}

TEST_F(ForeignDump, WhatIsElsewhereIsNotReadHere) {
  const auto nothing =
      opened([](const h5::File& file) { add(file, H5T_NATIVE_DOUBLE, std::nullopt); });
  EXPECT_TRUE(nothing.is_reference("x"));
  double value = 0;
  const Tensor one(&value, DType::float64, {1});
  EXPECT_THAT(support::refusal_of([&] { nothing.read("x", 0, one); }).message,
              testing::HasSubstr("0 are there"));
}

TEST_F(ForeignDump, RowsAreCountedWithin64Bits) {
  for (const int64_t row : {int64_t{-1}, int64_t{INT64_MAX}, INT64_MAX / 5 - 1})
    expect_parts(
        refusal([&](const h5::File& file) {
          h5::write_attribute(add(file, H5T_NATIVE_FLOAT, Extents{3, 5}, true), "first_row", row);
        }),
        {"dataset x has extents [3, 5] from row", str("{}", row)});
}

TEST_F(ForeignDump, LinksStayInTheFileAndDoNotTurnBack) {
  const auto circle = [](const h5::File& file) {
    h5::create_group(file, "g");
    for (const char* name : {"g/1", "g/2", "g/3"})
      h5::check_h5(H5Lcreate_hard(file, "g", file, name, H5P_DEFAULT, H5P_DEFAULT), name);
  };
  expect_parts(refusal(circle), {path_, "g is one of 4 names of the same"});
  expect_parts(refusal([](const h5::File& file) {
                 h5::check_h5(
                     H5Lcreate_external("other.h5", "/", file, "away", H5P_DEFAULT, H5P_DEFAULT),
                     "away");
               }),
               {path_, "away is a link to what is elsewhere"});
}

TEST_F(ForeignDump, AttributesAreOneTextOrNumber) {
  const hsize_t three = 3;
  const h5::Space list(H5Screate_simple(1, &three, nullptr), "space");
  const h5::Space one(H5Screate(H5S_SCALAR), "space");
  const auto with = [&](hid_t type, hid_t space) {
    return refusal([&](const h5::File& file) {
      h5::Attribute(H5Acreate2(file, "odd", type, space, H5P_DEFAULT, H5P_DEFAULT), "odd");
    });
  };
  const char* fault = "attribute odd is neither a text nor a whole number";
  EXPECT_THAT(with(H5T_NATIVE_INT64, list), testing::HasSubstr(fault));
  EXPECT_THAT(with(text_of(H5T_VARIABLE), one), testing::HasSubstr(fault));
  EXPECT_THAT(with(h5::Type(H5Tvlen_create(H5T_NATIVE_INT64), "type"), one),
              testing::HasSubstr(fault));
}

}  // namespace
}  // namespace longstraw
