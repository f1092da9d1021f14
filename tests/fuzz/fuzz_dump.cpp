// The input is a list of commands that lay out an HDF5 file, whose checksum of names, extents and
// attributes is then made right: a dump written with ill will. An input that starts as HDF5 files
// do is the file itself.
#include "fuzz/fuzz.hpp"

#include "longstraw/io/dump_description.hpp"
#include "longstraw/io/dump_file.hpp"

#include <array>
#include <limits>

using namespace longstraw;

namespace {

class Commands {
 public:
  Commands(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
  bool more() const { return at_ < end_; }
  size_t below(size_t limit) { return more() ? *at_++ % limit : 0; }
  template <class Table>
  auto one_of(const Table& table) {
    return table[below(table.size())];
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

constexpr std::array<const char*, 8> paths = {"a", "b", "g/a", "g/h/b", "g", "meta", "/", "t"};
constexpr std::array<const char*, 9> names = {"format",   "metadata_checksum", "checksum",
                                              "meaning",  "first_row",         "rows",
                                              "segments", "program",           "other"};
constexpr std::array<int64_t, 10> values = {
    0, 1, 2, 7, -1, 1 << 20, int64_t{1} << 32, int64_t{1} << 62, INT64_MAX, INT64_MIN};
constexpr std::array<hsize_t, 12> extents = {0,
                                             1,
                                             2,
                                             3,
                                             5,
                                             1 << 16,
                                             hsize_t{1} << 31,
                                             hsize_t{1} << 32,
                                             hsize_t{1} << 40,
                                             hsize_t{1} << 62,
                                             hsize_t{1} << 63,
                                             std::numeric_limits<hsize_t>::max() - 1};

h5::Type type_of(Commands& commands) {
  const size_t kind = commands.below(10);
  if (kind >= 7) {
    h5::Type text(H5Tcopy(H5T_C_S1), "type");
    const size_t size = kind == 7 ? H5T_VARIABLE : kind == 8 ? 1 : 1 + commands.below(200);
    h5::check_h5(H5Tset_size(text, size), "type");
    return text;
  }
  if (kind == 6) return {H5Tvlen_create(H5T_NATIVE_INT64), "type"};
  if (kind == 5) {
    const hsize_t three = 3;
    return {H5Tarray_create2(H5T_NATIVE_DOUBLE, 1, &three), "type"};
  }
  const std::array types = {H5T_NATIVE_DOUBLE, H5T_NATIVE_FLOAT, H5T_NATIVE_INT64, H5T_NATIVE_INT32,
                            H5T_STD_U64BE};
  return {H5Tcopy(types[kind]), "type"};
}

// Of the first `known` extents.
h5::Space space_of(Commands& commands, size_t known = extents.size()) {
  const size_t order = commands.below(6);
  if (order == 0) return {H5Screate(H5S_SCALAR), "space"};
  if (order == 5) return {H5Screate(H5S_NULL), "space"};
  std::array<hsize_t, 4> sizes{};
  for (size_t d = 0; d < order; ++d) sizes[d] = extents[commands.below(known)];
  return {H5Screate_simple(static_cast<int>(order), sizes.data(), nullptr), "space"};
}

void add_dataset(const h5::File& file, Commands& commands) {
  const char* path = commands.one_of(paths);
  const auto type = type_of(commands);
  const auto space = space_of(commands);
  const h5::Properties properties(H5Pcreate(H5P_DATASET_CREATE), "properties");
  const size_t layout = commands.below(4);
  const hssize_t elements = H5Sget_simple_extent_npoints(space);
  // HDF5 makes room for these when they are created.
  const bool few = elements >= 0 && elements <= 1 << 16;
  if (layout == 0 && few)
    h5::check_h5(H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY), "properties");
  if (layout == 1) {
    const std::array<hsize_t, 4> chunk = {2, 2, 2, 2};
    const int order = H5Sget_simple_extent_ndims(space);
    if (order > 0) h5::check_h5(H5Pset_chunk(properties, order, chunk.data()), "properties");
  }
  if (layout == 2 && few) h5::check_h5(H5Pset_layout(properties, H5D_COMPACT), "properties");
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

void add_link(const h5::File& file, Commands& commands) {
  const char* from = commands.one_of(paths);
  const std::string to = str("{}/link{}", commands.below(2) == 0 ? "g" : "", commands.below(9));
  switch (commands.below(3)) {
    case 0:
      h5::check_h5(H5Lcreate_hard(file, from, file, to.c_str(), H5P_DEFAULT, H5P_DEFAULT), to);
      break;
    case 1:
      h5::check_h5(H5Lcreate_soft(from, file, to.c_str(), H5P_DEFAULT, H5P_DEFAULT), to);
      break;
    default:
      h5::check_h5(
          H5Lcreate_external("/dev/zero", from, file, to.c_str(), H5P_DEFAULT, H5P_DEFAULT), to);
  }
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
        default: return add_link(file, commands);
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
