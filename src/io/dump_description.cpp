#include "longstraw/io/dump_description.hpp"

#include "longstraw/io/checksum.hpp"

#include <algorithm>
#include <functional>

namespace longstraw {
namespace {

herr_t keep_name(hid_t, const char* name, const H5A_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

void add_attributes(Digest& sum, hid_t object, bool is_root) {
  std::vector<std::string> names;
  hsize_t next = 0;
  h5::check_h5(H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, &next, keep_name, &names),
               "cannot list attributes");
  std::sort(names.begin(), names.end());
  for (const auto& name : names) {
    if (is_root && name == "metadata_checksum") continue;
    const h5::Attribute attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), name);
    const h5::Type type(H5Aget_type(attribute), name);
    const hsize_t bytes = H5Aget_storage_size(attribute);
    require(bytes <= (hsize_t{1} << 30), "attribute {} is too large", name);
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
    const hid_t object =
        h5::check_h5(H5Oopen(file, path.c_str(), H5P_DEFAULT), "cannot open " + path);
    const h5::Handle<H5Oclose> owner(object, path);
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
