#include "longstraw/io/dump_description.hpp"

#include "longstraw/io/checksum.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

namespace longstraw {
namespace {

constexpr std::string_view damaged = " - no dump of ours has that";

herr_t keep_name(hid_t, const char* name, const H5A_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

// One text of fixed length or one number: the rest would be read as other bytes than it has room.
void check_attribute(const h5::Attribute& attribute, const h5::Type& type,
                     const std::string& name) {
  const H5T_class_t kind = H5Tget_class(type);
  const h5::Space space(H5Aget_space(attribute), name);
  const bool text = kind == H5T_STRING && H5Tis_variable_str(type) == 0;
  const bool number = kind == H5T_INTEGER && H5Tget_size(type) <= 8;
  require((text || number) && H5Sget_simple_extent_type(space) == H5S_SCALAR,
          "attribute {} is neither a text nor a whole number{}", name, damaged);
}

// Elements of an array. They count within 64 bits in whatever order extents are multiplied, and
// with `first_row` more rows before them.
int64_t elements_of(const std::vector<int64_t>& extents, int64_t first_row,
                    const std::string& path) {
  int64_t elements = 1, largest = 1, before = first_row;
  bool fits = first_row >= 0;
  for (size_t d = 0; d < extents.size() && fits; ++d) {
    fits = extents[d] >= 0 &&
           !__builtin_mul_overflow(largest, std::max<int64_t>(extents[d], 1), &largest) &&
           (d == 0 || !__builtin_mul_overflow(before, std::max<int64_t>(extents[d], 1), &before));
    if (fits) elements *= extents[d];
  }
  fits = fits && !__builtin_add_overflow(largest, before, &before);
  require(fits, "dataset {} has extents [{}] from row {} on{}", path, fmt::join(extents, ", "),
          first_row, damaged);
  return elements;
}

// Refuses what no dump holds, before anything is read or room is made for it: other types than the
// readers expect, and extents without the bytes that belong to them.
void check_dataset(const h5::File& file, hid_t set, const std::string& path) {
  const h5::Type type(H5Dget_type(set), path);
  const h5::Space space(H5Dget_space(set), path);
  const H5T_class_t kind = H5Tget_class(type);
  const H5S_class_t shape = H5Sget_simple_extent_type(space);
  const size_t bytes = H5Tget_size(type);
  const bool text = kind == H5T_STRING && H5Tis_variable_str(type) == 0 && shape == H5S_SCALAR;
  const bool number = kind == H5T_INTEGER && bytes == 8 && shape == H5S_SCALAR;
  const bool array = kind == H5T_FLOAT && (bytes == 4 || bytes == 8);
  require(text || number || array, "dataset {} is neither a text, a number nor an array{}", path,
          damaged);
  if (shape == H5S_NULL) return;
  const int64_t first_row =
      h5::has_attribute(set, "first_row") ? h5::read_integer_attribute(set, "first_row") : 0;
  const int64_t elements = elements_of(h5::extents(file, path), first_row, path);
  int64_t needed = 0;
  hsize_t file_bytes = 0;
  h5::check_h5(H5Fget_filesize(file, &file_bytes), "size of the dump");
  const h5::Properties properties(H5Dget_create_plist(set), path);
  const bool here = H5Pget_layout(properties) == H5D_CONTIGUOUS &&
                    H5Pget_external_count(properties) == 0 &&
                    !__builtin_mul_overflow(elements, bytes, &needed) &&
                    static_cast<hsize_t>(needed) == H5Dget_storage_size(set) &&
                    static_cast<hsize_t>(needed) <= file_bytes;
  require(here, "dataset {} has {} elements of {} bytes, which the file does not hold{}", path,
          elements, bytes, damaged);
}

// Refuses links that leave the file, and those that lead to one object on several ways, in circles
// even.
h5::Handle<H5Oclose> opened(const h5::File& file, const std::string& path) {
  H5L_info_t link;
  h5::check_h5(H5Lget_info(file, path.c_str(), &link, H5P_DEFAULT), path);
  require(link.type == H5L_TYPE_HARD, "{} is a link to what is elsewhere{}", path, damaged);
  h5::Handle<H5Oclose> object(H5Oopen(file, path.c_str(), H5P_DEFAULT), "cannot open " + path);
  H5O_info_t info;
  h5::check_h5(H5Oget_info2(object, &info, H5O_INFO_BASIC), path);
  require(info.rc == 1, "{} is one of {} names of the same{}", path, info.rc, damaged);
  return object;
}

void add_attributes(Digest& sum, hid_t object, bool is_root) {
  std::vector<std::string> names;
  hsize_t next = 0;
  h5::check_h5(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, &next, keep_name, &names),
               "cannot list attributes");
  std::sort(names.begin(), names.end());
  for (const auto& name : names) {
    if (is_root && name == "metadata_checksum") continue;
    const h5::Attribute attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), name);
    const h5::Type type(H5Aget_type(attribute), name);
    check_attribute(attribute, type, name);
    const hsize_t bytes = H5Tget_size(type);
    require(bytes <= (hsize_t{1} << 30), "attribute {} is too large{}", name, damaged);
    std::string value(bytes, '\0');
    h5::check_h5(H5Aread(attribute, type, value.data()), "cannot read attribute " + name);
    sum.add(name);
    sum.add(str("{} {}", static_cast<int>(H5Tget_class(type)), H5Tget_size(type)));
    sum.add(value);
  }
}

using Visit = std::function<void(const std::string& path, hid_t object, bool is_dataset)>;

void visit(const h5::File& file, const std::string& group, int depth, const Visit& act) {
  require(depth < 16, "groups are nested too deeply at {}", group);
  for (const auto& name : h5::names(file, group)) {
    const std::string path = group == "/" ? name : group + "/" + name;
    const auto object = opened(file, path);
    const bool is_dataset = H5Iget_type(object) == H5I_DATASET;
    act(path, object, is_dataset);
    if (!is_dataset) visit(file, path, depth + 1, act);
  }
}

}  // namespace

std::vector<std::string> dataset_paths(const h5::File& file) {
  std::vector<std::string> paths;
  visit(file, "/", 0, [&](const std::string& path, hid_t, bool is_dataset) {
    if (is_dataset) paths.push_back(path);
  });
  return paths;
}

uint64_t described_sum(const h5::File& file) {
  Digest sum;
  add_attributes(sum, file, true);
  visit(file, "/", 0, [&](const std::string& path, hid_t object, bool is_dataset) {
    sum.add(path);
    if (is_dataset) {
      check_dataset(file, object, path);
      const h5::Type type(H5Dget_type(object), path);
      const h5::Space space(H5Dget_space(object), path);
      sum.add(str("{} {} {}", static_cast<int>(H5Tget_class(type)), H5Tget_size(type),
                  static_cast<int>(H5Sget_simple_extent_type(space))));
      sum.add(str("{}", fmt::join(h5::extents(file, path), " ")));
    }
    add_attributes(sum, object, false);
  });
  return sum.value();
}

}  // namespace longstraw
