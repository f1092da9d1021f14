#include "longstraw/io/dump_description.hpp"

#include "longstraw/io/checksum.hpp"

#include <algorithm>
#include <functional>
#include <set>

namespace longstraw {
namespace {

constexpr hsize_t largest_attribute = hsize_t{1} << 26;

herr_t keep_name(hid_t, const char* name, const H5A_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
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
    const hsize_t bytes = H5Aget_storage_size(attribute);
    require(bytes <= largest_attribute, "attribute {} is too large", name);
    // What is stored elsewhere would be read as addresses.
    const bool plain = H5Tget_class(type) == H5T_INTEGER ||
                       (H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0);
    require(plain, "attribute {} is no number and no text of fixed length", name);
    std::string value(bytes, '\0');
    h5::check_h5(H5Aread(attribute, type, value.data()), "cannot read attribute " + name);
    sum.add(name);
    sum.add(str("{} {}", static_cast<int>(H5Tget_class(type)), H5Tget_size(type)));
    sum.add(value);
  }
}

// Refuses a dataset that is not, or not all, stored as a dump's are: then nothing that is read
// makes more room than the file takes.
void check_stored(const h5::File& file, hid_t set, const std::string& path) {
  const h5::Type type(H5Dget_type(set), path);
  const auto kind = H5Tget_class(type);
  const size_t size = H5Tget_size(type);
  const bool known = (kind == H5T_STRING && H5Tis_variable_str(type) == 0) ||
                     (kind == H5T_INTEGER && size == 8) ||
                     (kind == H5T_FLOAT && (size == 4 || size == 8));
  require(known, "dataset {} has a type that no dump has", path);
  hsize_t file_bytes = 0;
  h5::check_h5(H5Fget_filesize(file, &file_bytes), "cannot tell the file's size");
  const h5::Space space(H5Dget_space(set), path);
  hsize_t bytes = H5Sget_simple_extent_type(space) == H5S_NULL ? 0 : size;
  for (const int64_t extent : h5::extents(file, path)) {
    require(extent >= 0 && (bytes == 0 || static_cast<hsize_t>(extent) <= file_bytes / bytes),
            "dataset {} is larger than the file", path);
    bytes *= extent;
  }
  if (bytes == 0) return;
  const haddr_t begin = H5Dget_offset(set);
  require(begin != HADDR_UNDEF && H5Dget_storage_size(set) == bytes && bytes <= file_bytes &&
              begin <= file_bytes - bytes,
          "the content of dataset {} is not in the file", path);
}

using Visit = std::function<void(const std::string& path, hid_t object, bool is_dataset)>;

// All groups and datasets, each once: a dump has no other objects, and no links but to those in it.
struct Walk {
  const h5::File& file;
  const Visit& act;
  std::set<haddr_t> seen{};

  void go_through(const std::string& group, int depth) {
    require(depth < 16, "groups are nested too deeply at {}", group);
    for (const auto& name : h5::names(file, group)) {
      const std::string path = group == "/" ? name : group + "/" + name;
      H5L_info_t link;
      h5::check_h5(H5Lget_info(file, path.c_str(), &link, H5P_DEFAULT), "cannot open " + path);
      require(link.type == H5L_TYPE_HARD && seen.insert(link.u.address).second,
              "{} is a link, which no dump has", path);
      const hid_t object =
          h5::check_h5(H5Oopen(file, path.c_str(), H5P_DEFAULT), "cannot open " + path);
      const h5::Handle<H5Oclose> owner(object, path);
      const bool is_dataset = H5Iget_type(object) == H5I_DATASET;
      if (is_dataset) check_stored(file, object, path);
      act(path, object, is_dataset);
      if (!is_dataset) go_through(path, depth + 1);
    }
  }
};

void visit(const h5::File& file, const Visit& act) {
  Walk{.file = file, .act = act}.go_through("/", 0);
}

}  // namespace

std::vector<std::string> dataset_paths(const h5::File& file) {
  std::vector<std::string> paths;
  visit(file, [&](const std::string& path, hid_t, bool is_dataset) {
    if (is_dataset) paths.push_back(path);
  });
  return paths;
}

uint64_t described_sum(const h5::File& file) {
  Digest sum;
  add_attributes(sum, file, true);
  visit(file, [&](const std::string& path, hid_t object, bool is_dataset) {
    sum.add(path);
    if (is_dataset) {
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
