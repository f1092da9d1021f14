// The input is a list of commands that lay out an HDF5 file, whose checksum of names, extents and
// attributes is then made right: a dump written with ill will. An input that starts as HDF5 files
// do is the file itself.
#include "fuzz/fuzz.hpp"
#include "fuzz/hdf5_commands.hpp"

#include "longstraw/io/dump_description.hpp"
#include "longstraw/io/dump_file.hpp"

#include <array>

using namespace longstraw;
using fuzz::Commands;

namespace {

constexpr std::array<const char*, 8> paths = {"a", "b", "g/a", "g/h/b", "g", "meta", "/", "t"};
constexpr std::array<const char*, 9> names = {"format",   "metadata_checksum", "checksum",
                                              "meaning",  "first_row",         "rows",
                                              "segments", "program",           "other"};
constexpr std::array<int64_t, 10> values = {
    0, 1, 2, 7, -1, 1 << 20, int64_t{1} << 32, int64_t{1} << 62, INT64_MAX, INT64_MIN};

void add_dataset(const h5::File& file, Commands& commands) {
  const char* path = commands.one_of(paths);
  const auto type = type_of(commands);
  const auto space = space_of(commands);
  const auto properties = layout_of(commands, space);
  const h5::Properties links(H5Pcreate(H5P_LINK_CREATE), "properties");
  h5::check_h5(H5Pset_create_intermediate_group(links, 1), "properties");
  const h5::Dataset set(H5Dcreate2(file, path, type, space, links, properties, H5P_DEFAULT), path);
  h5::write_attribute(set, "meaning", "elements");
  h5::write_attribute(set, "checksum", commands.one_of(values));
}

void add_attribute(const h5::File& file, Commands& commands) {
  const char* path = commands.one_of(paths);
  const char* name = commands.one_of(names);
  const h5::Handle<H5Oclose> object(H5Oopen(file, path, H5P_DEFAULT), path);
  const size_t kind = commands.below(3);
  if (kind == 0) return h5::write_attribute(object, name, commands.one_of(values));
  if (kind == 1) return h5::write_attribute(object, name, std::string(commands.below(99), 'x'));
  const auto type = type_of(commands);
  const auto space = space_of(commands, 5);  // an attribute is in memory
  h5::Attribute(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), name);
}

void lay_out(const std::string& path, Commands& commands) {
  h5::File file = h5::create_file(path);
  h5::write_attribute(file, "segments", "one.h5");
  h5::write_attribute(file, "program", "p");
  if (commands.below(16) != 1) h5::write_attribute(file, "format", dump_format);
  for (int number = 0; number < 24 && commands.more(); ++number)
    fuzz::read_or_refuse([&] {
      switch (commands.below(4)) {
        case 0:
        case 1: return add_dataset(file, commands);
        case 2: return add_attribute(file, commands);
        default: {
          const char* from = commands.one_of(paths);
          const char* group = commands.below(2) == 0 ? "g" : "";
          return add_link(file, commands, from, str("{}/link{}", group, commands.below(9)));
        }
      }
    });
  const auto sum = static_cast<int64_t>(described_sum(file));
  h5::write_attribute(file, "metadata_checksum", sum);
  file.reset("cannot close");
}

void read_all(const DumpFileReader& dump) {
  fuzz::read_or_refuse([&] { dump.attribute("segments"); });
  for (const auto& path : dump.paths()) {
    fuzz::must(dump.has(path));
    fuzz::read_or_refuse([&] { dump.meaning(path); });
    fuzz::read_or_refuse([&] { dump.stored_sum(path); });
    fuzz::read_or_refuse([&] { dump.computed_sum(path, 3, 1); });
    fuzz::read_or_refuse([&] { dump.number(path); });
    fuzz::read_or_refuse([&] { dump.text(path); });
    fuzz::read_or_refuse([&] { dump.numbers(path); });
    fuzz::read_or_refuse([&] { fuzz::must(dump.bytes(path) >= 0 && dump.first_row(path) >= 0); });
    for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{INT64_MAX}})
      fuzz::read_or_refuse([&] {
        std::array<double, 3> to{};
        dump.read(path, first, Tensor(to.data(), DType::float64, {3}));
      });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const bool whole = input.starts_with("\x89HDF");
  const fuzz::MemoryFile file(whole ? input : std::string_view());
  fuzz::read_or_refuse([&] {
    Commands commands(data, size);
    if (!whole) lay_out(file.path(), commands);
    read_all(DumpFileReader(file.path()));
  });
  return 0;
}
