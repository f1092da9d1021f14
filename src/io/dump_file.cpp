#include "longstraw/io/dump_file.hpp"

#include "longstraw/core/version.hpp"
#include "longstraw/io/dump_description.hpp"
#include "longstraw/io/file.hpp"

#include <cstring>
#include <filesystem>

namespace longstraw {
namespace {

// Times the bytes of a row, which are in the file, it is no overflow.
constexpr int64_t largest_row = int64_t{1} << 40;
// Bytes that HDF5 takes besides the content, with room to spare: some 400 a dataset were seen.
constexpr int64_t file_overhead = 16 << 10, item_overhead = 1 << 10;
// What is summed and then written, or read and then summed, at a time: it stays in the cache.
constexpr int64_t part_elements = int64_t{1} << 17;

h5::Space space_of(const std::vector<int64_t>& extents) {
  if (extents.empty()) return {H5Screate(H5S_SCALAR), "extents"};
  const std::vector<hsize_t> sizes(extents.begin(), extents.end());
  return {H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), "extents"};
}

h5::Dataset create_dataset(const h5::File& file, const DumpArray& array, hid_t type,
                           const h5::Space& space) {
  const h5::Properties links(H5Pcreate(H5P_LINK_CREATE), "properties");
  h5::check_h5(H5Pset_create_intermediate_group(links, 1), "properties");
  // Every element is written, at a place that is set now.
  const h5::Properties properties = h5::without_times(H5P_DATASET_CREATE);
  h5::check_h5(H5Pset_alloc_time(properties, H5D_ALLOC_TIME_EARLY), "properties");
  h5::check_h5(H5Pset_fill_time(properties, H5D_FILL_TIME_NEVER), "properties");
  h5::Dataset set(H5Dcreate2(file, array.path.c_str(), type, space, links, properties, H5P_DEFAULT),
                  "cannot create dataset " + array.path);
  h5::write_attribute(set, "meaning", array.meaning);
  return set;
}

}  // namespace

// ---- writing

void DumpFileWriter::attribute(const std::string& name, const std::string& value) {
  attributes_.emplace_back(name, value);
}

void DumpFileWriter::number(const std::string& path, int64_t value, std::string_view meaning) {
  items_.push_back({.kind = Kind::number,
                    .array = {.path = path, .extents = {}, .meaning = std::string(meaning)},
                    .number = value});
}

void DumpFileWriter::text(const std::string& path, const std::string& value,
                          std::string_view meaning) {
  items_.push_back({.kind = Kind::text,
                    .array = {.path = path, .extents = {}, .meaning = std::string(meaning)},
                    .text = value});
}

void DumpFileWriter::numbers(const std::string& path, std::span<const double> values,
                             std::string_view meaning) {
  items_.push_back({.kind = Kind::array,
                    .array = {.path = path,
                              .type = DType::float64,
                              .extents = {std::ssize(values)},
                              .meaning = std::string(meaning)},
                    .numbers = {values.begin(), values.end()}});
  Item& item = items_.back();
  if (grid_.rank() == 0)
    item.pieces = {{.values = Tensor(item.numbers.data(), DType::float64, {std::ssize(values)})}};
}

void DumpFileWriter::array(const DumpArray& array, std::span<const DumpPiece> pieces,
                           int64_t first_row) {
  items_.push_back({.kind = Kind::array, .array = array, .first_row = first_row});
  for (const DumpPiece& piece : pieces)
    if (piece.own) items_.back().pieces.push_back(piece);
}

void DumpFileWriter::contributions(const DumpArray& array, std::span<const DumpPiece> pieces) {
  DumpArray stored = array;
  stored.extents.insert(stored.extents.begin(), grid_.size());
  items_.push_back({.kind = Kind::contributions,
                    .array = std::move(stored),
                    .pieces = {pieces.begin(), pieces.end()}});
}

void DumpFileWriter::reference(const DumpArray& array) {
  items_.push_back({.kind = Kind::reference, .array = array});
}

int64_t DumpFileWriter::bytes() const {
  int64_t bytes = 0;
  for (const Item& item : items_) switch (item.kind) {
      case Kind::number: bytes += sizeof item.number; break;
      case Kind::text: bytes += std::ssize(item.text); break;
      case Kind::array:
      case Kind::contributions:
        bytes += elements_of(item.array.extents) * size_of(item.array.type);
        break;
      case Kind::reference: break;
    }
  return bytes;
}

std::map<std::string, uint64_t> DumpFileWriter::complete() {
  try {
    agree(grid_, [&] {
      if (grid_.rank() == 0) lay_out();
    });
    write_values();
    agree(grid_, [&] {
      if (grid_.rank() == 0) add_sums();
    });
  } catch (const Error&) {
    std::error_code ignored;
    if (grid_.rank() == 0) std::filesystem::remove(temporary(), ignored);
    throw;
  }
  return sums_;
}

void DumpFileWriter::lay_out() const {
  // First, so that nothing is laid out without room for all of it; closing takes the exact size.
  take_room(temporary(), bytes() + file_overhead + item_overhead * std::ssize(items_));
  h5::File file = h5::create_file(temporary());
  h5::write_attribute(file, "format", dump_format);
  h5::write_attribute(file, "program", str("LongStraw {}", version_text));
  for (const auto& [name, value] : attributes_) h5::write_attribute(file, name, value);
  for (const Item& item : items_) {
    const std::string& path = item.array.path;
    if (item.kind == Kind::number) {
      create_dataset(file, item.array, H5T_NATIVE_INT64, space_of({}));
    } else if (item.kind == Kind::text) {
      create_dataset(file, item.array, h5::text_type(item.text), space_of({}));
    } else if (item.kind == Kind::reference) {
      const h5::Space none(H5Screate(H5S_NULL), "no extents");
      const auto set = create_dataset(file, item.array, h5::memory_type(item.array.type), none);
      h5::write_attribute(set, "rows", item.array.extents.at(0));
    } else {
      const auto set = create_dataset(file, item.array, h5::memory_type(item.array.type),
                                      space_of(item.array.extents));
      if (item.first_row > 0) h5::write_attribute(set, "first_row", item.first_row);
      if (item.kind == Kind::contributions)
        h5::write_attribute(set, "contributing_ranks", item.array.extents[0]);
    }
    // The attribute is there before its value, which is known at the end.
    const h5::Dataset set(H5Dopen2(file, path.c_str(), H5P_DEFAULT), path);
    h5::write_attribute(set, "checksum", int64_t{0});
  }
  h5::write_attribute(file, "metadata_checksum", int64_t{0});
  file.reset("cannot close " + temporary());
}

void DumpFileWriter::write_values() {
  h5::File file;
  agree(grid_, [&] { file = h5::modify_parallel_file(temporary(), grid_); });
  std::vector<uint64_t> parts;
  agree(grid_, [&] {
    for (const Item& item : items_) write_item(file, item);
  });
  for (const Item& item : items_) parts.push_back(sums_[item.array.path]);
  // The writes of this machine, of which the rank that renames the file may know nothing.
  agree(grid_, [&] {
    file.reset("cannot close " + temporary());
    DiskFile::append(temporary()).sync();
  });
  grid_.sum(parts);
  for (size_t i = 0; i < items_.size(); ++i)
    if (items_[i].kind != Kind::reference) sums_[items_[i].array.path] = parts[i];
}

void DumpFileWriter::write_item(const h5::File& file, const Item& item) {
  const std::string& path = item.array.path;
  if (item.kind == Kind::array) return write_pieces(file, item, item.pieces);
  if (item.kind == Kind::contributions) {
    const int64_t size = row_elements_of(item.array.extents), offset = grid_.rank() * size;
    int64_t held = 0;
    std::vector<DumpPiece> all;
    for (const DumpPiece& piece : item.pieces) {
      held += piece.values.size();
      all.push_back({.first = offset + piece.first, .values = piece.values});
    }
    if (held == size) return write_pieces(file, item, all);
    // What the rank does not hold is zero, and is written too.
    std::vector<std::byte> buffer(size * size_of(item.array.type));
    for (const DumpPiece& piece : item.pieces)
      if (!piece.values.empty())
        std::memcpy(buffer.data() + piece.first * size_of(item.array.type), piece.values.raw(),
                    piece.values.bytes());
    const DumpPiece whole{.first = offset,
                          .values = Tensor(buffer.data(), item.array.type, {size})};
    return write_pieces(file, item, std::span(&whole, 1));
  }
  if (grid_.rank() != 0 || item.kind == Kind::reference) return;
  const h5::Dataset set(H5Dopen2(file, path.c_str(), H5P_DEFAULT), path);
  if (item.kind == Kind::number) {
    h5::check_h5(H5Dwrite(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &item.number),
                 "cannot write " + path);
    sums_[path] = content_sum(&item.number, 1, sizeof item.number, 0);
  } else {
    const auto type = h5::text_type(item.text);
    h5::check_h5(H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, item.text.c_str()),
                 "cannot write " + path);
    sums_[path] = content_sum(item.text.data(), std::ssize(item.text), 1, 0);
  }
}

void DumpFileWriter::write_pieces(const h5::File& file, const Item& item,
                                  std::span<const DumpPiece> pieces) {
  const std::string& path = item.array.path;
  const int64_t offset = item.first_row * row_elements_of(item.array.extents);
  const h5::Dataset set(H5Dopen2(file, path.c_str(), H5P_DEFAULT), path);
  uint64_t& sum = sums_[path];
  for (const DumpPiece& piece : pieces) {
    if (piece.values.empty()) continue;
    LONGSTRAW_ASSERT(piece.values.contiguous());
    const Tensor all = piece.values.reshape({piece.values.size()});
    for (int64_t begin = 0; begin < all.size(); begin += part_elements) {
      const Tensor part = all.rows(begin, std::min(begin + part_elements, all.size()));
      sum += content_sum(part.raw(), part.size(), size_of(item.array.type),
                         offset + piece.first + begin);
      h5::write_flat(set, piece.first + begin, part, path);
      grid_.activity().beat();
    }
  }
}

void DumpFileWriter::add_sums() const {
  h5::File file = h5::modify_file(temporary());
  for (const Item& item : items_)
    h5::set_attribute(file, item.array.path, "checksum",
                      static_cast<int64_t>(sums_.at(item.array.path)));
  h5::set_attribute(file, "/", "metadata_checksum", static_cast<int64_t>(described_sum(file)));
  file.reset("cannot close " + temporary());
  DiskFile::append(temporary()).sync();
  move_into_place(temporary(), path_);
}

// ---- reading

DumpFileReader::DumpFileReader(const std::string& path) : path_(path) {
  try {
    check_regular(path);
    file_ = h5::open_file(path);
    require(h5::has_attribute(file_, "format") && h5::has_attribute(file_, "metadata_checksum"),
            "it has no format number or no checksum");
  } catch (const Error& error) {
    throw Error(str("{} is no whole dump: {}", path, error.what()));
  }
  try {
    check_facts();
  } catch (const Error& error) {
    throw Error(str("{}: {}", path, error.what()));
  }
}

void DumpFileReader::check_facts() const {
  const int64_t format = h5::read_integer_attribute(file_, "format");
  require(format >= oldest_dump_format && format <= dump_format,
          "it is a dump of format {}, this program ({}) reads formats {} to {} - use the program "
          "that wrote it ({})",
          format, version_text, oldest_dump_format, dump_format, attribute("program"));
  const auto stored = static_cast<uint64_t>(h5::read_integer_attribute(file_, "metadata_checksum"));
  uint64_t found = 0;
  try {
    found = described_sum(file_);
  } catch (const Error& error) {
    throw Error(str("it is damaged: {}", error.what()));
  }
  require(found == stored,
          "it is damaged: its names, extents or attributes do not match their checksum");
}

std::string DumpFileReader::attribute(const std::string& name) const {
  return h5::read_attribute(file_, name);
}

namespace {

h5::Dataset opened(const h5::File& file, const std::string& name, const std::string& path) {
  return {H5Dopen2(file, path.c_str(), H5P_DEFAULT), str("{}: no dataset {}", name, path)};
}

int64_t elements(const h5::Dataset& set) {
  const h5::Space space(H5Dget_space(set), "extents");
  return std::max<int64_t>(H5Sget_simple_extent_npoints(space), 0);
}

// A dataset of this class of values; what is opened was checked to be one value where it is no
// array, and to hold the bytes of its extents.
h5::Dataset opened_as(H5T_class_t kind, const h5::File& file, const std::string& name,
                      const std::string& path, std::string_view expected) {
  auto set = opened(file, name, path);
  const h5::Type type(H5Dget_type(set), path);
  require(H5Tget_class(type) == kind, "{}: {} is no {}", name, path, expected);
  return set;
}

}  // namespace

int64_t DumpFileReader::number(const std::string& path) const {
  const auto set = opened_as(H5T_INTEGER, file_, path_, path, "number");
  int64_t value = 0;
  h5::check_h5(H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value),
               str("{}: cannot read {}", path_, path));
  return value;
}

std::string DumpFileReader::text(const std::string& path) const {
  const auto set = opened_as(H5T_STRING, file_, path_, path, "text");
  const h5::Type type(H5Dget_type(set), path);
  std::string value(H5Tget_size(type), '\0');
  h5::check_h5(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value.data()),
               str("{}: cannot read {}", path_, path));
  return value == std::string(1, '\0') ? std::string() : value;
}

std::vector<int64_t> DumpFileReader::extents(const std::string& path) const {
  return h5::extents(file_, path);
}

int64_t DumpFileReader::first_row(const std::string& path) const {
  const auto set = opened(file_, path_, path);
  if (!h5::has_attribute(set, "first_row")) return 0;
  const int64_t row = h5::read_integer_attribute(set, "first_row");
  require(row >= 0 && row <= largest_row, "{}: {} starts at row {}", path_, path, row);
  return row;
}

std::string DumpFileReader::meaning(const std::string& path) const {
  return h5::read_attribute(opened(file_, path_, path), "meaning");
}

bool DumpFileReader::is_reference(const std::string& path) const {
  const auto set = opened(file_, path_, path);
  const h5::Space space(H5Dget_space(set), path);
  return H5Sget_simple_extent_type(space) == H5S_NULL;
}

void DumpFileReader::read(const std::string& path, int64_t first, const Tensor& to) const {
  if (to.empty()) return;
  const auto set = opened(file_, path_, path);
  const h5::Type type(H5Dget_type(set), path);
  require(H5Tget_class(type) == H5T_FLOAT &&
              static_cast<int64_t>(H5Tget_size(type)) == size_of(to.type()),
          "{}: {} has elements of another type than this run's", path_, path);
  h5::read_flat(set, first, to, str("{} of {}", path, path_));
}

std::vector<double> DumpFileReader::numbers(const std::string& path) const {
  const auto set = opened_as(H5T_FLOAT, file_, path_, path, "list of numbers");
  require(extents(path).size() == 1, "{}: {} is no list of numbers", path_, path);
  return h5::read_all(file_, path);
}

std::vector<std::string> DumpFileReader::paths() const { return dataset_paths(file_); }

int64_t DumpFileReader::bytes(const std::string& path) const {
  const auto set = opened(file_, path_, path);
  const h5::Type type(H5Dget_type(set), path);
  return elements(set) * static_cast<int64_t>(H5Tget_size(type));
}

uint64_t DumpFileReader::stored_sum(const std::string& path) const {
  const auto set = opened(file_, path_, path);
  return static_cast<uint64_t>(h5::read_integer_attribute(set, "checksum"));
}

uint64_t DumpFileReader::computed_sum(const std::string& path, int parts, int part) const {
  const auto set = opened(file_, path_, path);
  const h5::Type type(H5Dget_type(set), path);
  const std::string what = str("{} of {}", path, path_);
  if (H5Tget_class(type) == H5T_STRING) {
    const std::string value = text(path);
    return part == 0 ? content_sum(value.data(), std::ssize(value), 1, 0) : 0;
  }
  if (H5Tget_class(type) == H5T_INTEGER) {
    const int64_t value = number(path);
    return part == 0 ? content_sum(&value, 1, sizeof value, 0) : 0;
  }
  const DType element = H5Tget_size(type) == 4 ? DType::float32 : DType::float64;
  const auto shape = extents(path);
  const int64_t offset = first_row(path) * row_elements_of(shape);
  const Range mine = part_of(elements_of(shape), parts, part);
  std::vector<std::byte> buffer(std::min(part_elements, mine.size()) * size_of(element));
  uint64_t sum = 0;
  for (int64_t begin = mine.begin; begin < mine.end; begin += part_elements) {
    const Tensor values(buffer.data(), element, {std::min(part_elements, mine.end - begin)});
    h5::read_flat(set, begin, values, what);
    sum += content_sum(values.raw(), values.size(), size_of(element), begin + offset);
  }
  return sum;
}

}  // namespace longstraw
