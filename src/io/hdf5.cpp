#include "longstraw/io/hdf5.hpp"

#include "longstraw/io/file.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include <sys/mman.h>
#include <unistd.h>

namespace longstraw::h5 {
namespace {

// The first entry of the walk upward is the innermost call, the one that knows why.
herr_t keep_reason(unsigned depth, const H5E_error2_t* entry, void* out) {
  if (depth == 0 && entry->desc != nullptr) *static_cast<std::string*>(out) = entry->desc;
  return 0;
}

std::string reason() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_reason, &text);
  H5Eclear2(H5E_DEFAULT);
  // Of a failed call of the system it gives a page, with the time of day.
  constexpr std::string_view before = "error message = '";
  if (const size_t at = text.find(before); at != std::string::npos) {
    const size_t begin = at + before.size();
    text = text.substr(begin, text.find('\'', begin) - begin);
  }
  return text.empty() ? "no reason given" : text;
}

// HDF5 prints errors by itself unless told not to; we say them once, in our own words.
void quiet() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

// Locks of HDF5's own fail on many network file systems; a run folder has one of ours. The newest
// format has checksums in the library's own structures.
Properties access_properties() {
  quiet();
  Properties access(H5Pcreate(H5P_FILE_ACCESS), "access properties");
  check_h5(H5Pset_file_locking(access, false, true), "access properties");
  check_h5(H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110), "access properties");
  return access;
}

// HDF5 has no text of no bytes: an empty one is stored as one zero byte.
const std::string empty_text(1, '\0');

// Adds elements `range` of an array with these extents, whose first dimensions are at `prefix`.
void add_flat(const Space& space, const std::vector<int64_t>& extents, std::vector<hsize_t> prefix,
              Range range, H5S_seloper_t& how) {
  const size_t at = prefix.size();
  int64_t row = 1;
  for (size_t d = at + 1; d < extents.size(); ++d) row *= extents[d];
  const auto slab = [&](Range rows) {
    std::vector<hsize_t> start = prefix, count(at, 1);
    start.push_back(rows.begin), count.push_back(rows.size());
    for (size_t d = at + 1; d < extents.size(); ++d)
      start.push_back(0), count.push_back(extents[d]);
    check_h5(H5Sselect_hyperslab(space, how, start.data(), nullptr, count.data(), nullptr),
             "selection");
    how = H5S_SELECT_OR;
  };
  const auto inside = [&](int64_t index, Range elements) {
    auto next = prefix;
    next.push_back(index);
    add_flat(space, extents, std::move(next), elements, how);
  };
  const int64_t first = range.begin / row, last = range.end / row;
  if (first == last) return inside(first, {range.begin - first * row, range.end - first * row});
  const int64_t whole = (range.begin + row - 1) / row;
  if (whole > first) inside(first, {range.begin - first * row, row});
  if (last > whole) slab({whole, last});
  if (range.end > last * row) inside(last, {0, range.end - last * row});
}

std::vector<int64_t> extents_of(const Dataset& set, const std::string& what) {
  const Space space(H5Dget_space(set), "no extents of " + what);
  std::vector<hsize_t> found(check_h5(H5Sget_simple_extent_ndims(space), what));
  check_h5(H5Sget_simple_extent_dims(space, found.data(), nullptr), what);
  return {found.begin(), found.end()};
}

// act(selection in the file, memory space, part of values) for parts of at most 1 GiB.
template <class Act>
void for_each_transfer(const Dataset& set, int64_t first, const Tensor& values,
                       const std::string& what, const Act& act) {
  const auto extents = extents_of(set, what);
  const Space file(H5Dget_space(set), "extents");
  const hssize_t there = H5Sget_simple_extent_npoints(file);
  require(first >= 0 && first <= there && values.size() <= there - first,
          "{}: {} elements from {} on are asked for, {} are there", what, values.size(), first,
          there);
  const int64_t most = largest_transfer / size_of(values.type());
  const Tensor flat = values.reshape({values.size()});
  for (int64_t begin = 0; begin < flat.size(); begin += most) {
    const Tensor part = flat.rows(begin, std::min(begin + most, flat.size()));
    if (!extents.empty()) select_flat(file, extents, {first + begin, first + begin + part.size()});
    const hsize_t elements = part.size();
    const Space memory(H5Screate_simple(1, &elements, nullptr), "selection");
    act(file, memory, part);
  }
}

herr_t keep_name(hid_t, const char* name, const H5L_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

std::string name_of(hid_t file) {
  std::string name(check_h5(H5Fget_name(file, nullptr, 0), "name of a file"), '\0');
  check_h5(H5Fget_name(file, name.data(), name.size() + 1), "name of a file");
  return name;
}

// Of the disk, for what HDF5 still has to write of a file; empty when there is room, or when only
// all ranks together could tell.
std::string lack_of_room(hid_t file) {
  unsigned intent = H5F_ACC_RDONLY;
  hsize_t bytes = 0;
  try {
    const Properties access(H5Fget_access_plist(file), "access properties");
    if (H5Pget_driver(access) == H5FD_SEC2 && H5Fget_intent(file, &intent) >= 0 &&
        intent != H5F_ACC_RDONLY && H5Fget_filesize(file, &bytes) >= 0)
      take_room(name_of(file), static_cast<int64_t>(bytes));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// What is read into one value must not be more.
void require_one_element(const Attribute& attribute, const std::string& name) {
  const Space space(H5Aget_space(attribute), "extents of attribute " + name);
  require(H5Sget_simple_extent_npoints(space) == 1, "attribute {} is not one value", name);
}

}  // namespace

hid_t check_h5(hid_t code, const std::string& what) {
  if (code < 0) throw Error(str("{} (HDF5: {})", what, reason()));
  return code;
}

// HDF5 keeps a file open that it could not write out, and crashes on it when the program ends. So
// one without room is pointed to memory first, where the rest of the writes succeed.
herr_t close_file(hid_t file) {
  const std::string lack = lack_of_room(file);
  if (lack.empty()) return H5Fclose(file);
  void* descriptor = nullptr;
  const int memory = ::memfd_create("longstraw", MFD_CLOEXEC);
  if (memory >= 0 && H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor) >= 0)
    ::dup2(memory, *static_cast<int*>(descriptor));
  if (memory >= 0) ::close(memory);
  H5Fclose(file);
  H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_FILE, H5E_WRITEERROR, "%s",
           lack.c_str());
  return -1;
}

File open_file(const std::string& path) {
  const auto access = access_properties();
  return File(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), "cannot open HDF5 file " + path);
}

File create_file(const std::string& path) {
  const auto access = access_properties();
  const Properties how = without_times(H5P_FILE_CREATE);
  return File(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, how, access),
              "cannot create HDF5 file " + path);
}

File modify_parallel_file(const std::string& path, const Grid& grid) {
  const auto access = access_properties();
  check_h5(H5Pset_fapl_mpio(access, grid.comm(), MPI_INFO_NULL), "parallel access");
  return File(H5Fopen(path.c_str(), H5F_ACC_RDWR, access), "cannot open HDF5 file " + path);
}

File modify_file(const std::string& path) {
  const auto access = access_properties();
  return File(H5Fopen(path.c_str(), H5F_ACC_RDWR, access), "cannot open HDF5 file " + path);
}

Properties without_times(hid_t kind) {
  Properties how(H5Pcreate(kind), "creation properties");
  check_h5(H5Pset_obj_track_times(how, false), "creation properties");
  return how;
}

Type text_type(const std::string& value) {
  Type type(H5Tcopy(H5T_C_S1), "string type");
  check_h5(H5Tset_size(type, std::max<size_t>(value.size(), 1)), "string type");
  return type;
}

hid_t memory_type(DType type) {
  LONGSTRAW_ASSERT(type == compute_type(type));
  return type == DType::float32 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
}

std::vector<int64_t> extents(const File& file, const std::string& path) {
  const Dataset set(H5Dopen2(file, path.c_str(), H5P_DEFAULT), "no dataset " + path);
  return extents_of(set, path);
}

std::vector<double> read_all(const File& file, const std::string& path) {
  const auto shape = extents(file, path);
  const Dataset set(H5Dopen2(file, path.c_str(), H5P_DEFAULT), "no dataset " + path);
  std::vector<double> values(elements_of(shape));
  check_h5(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
           "cannot read dataset " + path);
  return values;
}

void select_flat(const Space& space, const std::vector<int64_t>& extents, Range range) {
  H5S_seloper_t how = H5S_SELECT_SET;
  add_flat(space, extents, {}, range, how);
}

void write_flat(const Dataset& set, int64_t first, const Tensor& values, const std::string& what) {
  for_each_transfer(set, first, values, what, [&](hid_t file, hid_t memory, const Tensor& part) {
    check_h5(H5Dwrite(set, memory_type(part.type()), memory, file, H5P_DEFAULT, part.raw()),
             "cannot write " + what);
  });
}

void read_flat(const Dataset& set, int64_t first, const Tensor& values, const std::string& what) {
  for_each_transfer(set, first, values, what, [&](hid_t file, hid_t memory, const Tensor& part) {
    check_h5(H5Dread(set, memory_type(part.type()), memory, file, H5P_DEFAULT, part.raw()),
             "cannot read " + what);
  });
}

std::vector<std::string> names(const File& file, const std::string& path) {
  const Group group(H5Gopen2(file, path.c_str(), H5P_DEFAULT), "no group " + path);
  std::vector<std::string> found;
  hsize_t next = 0;
  // In native order: for another, HDF5 1.10 makes a table, and of a damaged group frees what it has
  // not filled.
  check_h5(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &next, keep_name, &found), path);
  std::sort(found.begin(), found.end());
  return found;
}

bool exists(const File& file, const std::string& path) {
  // A link can only be asked for when all groups above it exist.
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    const htri_t found = H5Lexists(file, part.c_str(), H5P_DEFAULT);
    if (found < 0) {
      const std::string why = reason();
      throw Error(str("{}: cannot look for {} (HDF5: {})", name_of(file), part, why));
    }
    if (found == 0) return false;
    if (slash == std::string::npos) return true;
  }
}

void write_attribute(hid_t object, const std::string& name, const std::string& value) {
  const Type type = text_type(value);
  const Space space(H5Screate(H5S_SCALAR), "scalar");
  const Attribute attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
                            "cannot create attribute " + name);
  check_h5(H5Awrite(attribute, type, value.c_str()), "cannot write attribute " + name);
}

void write_attribute(hid_t object, const std::string& name, int64_t value) {
  const Space space(H5Screate(H5S_SCALAR), "scalar");
  const Attribute attribute(
      H5Acreate2(object, name.c_str(), H5T_NATIVE_INT64, space, H5P_DEFAULT, H5P_DEFAULT),
      "cannot create attribute " + name);
  check_h5(H5Awrite(attribute, H5T_NATIVE_INT64, &value), "cannot write attribute " + name);
}

void set_attribute(const File& file, const std::string& path, const std::string& name,
                   int64_t value) {
  const Handle<H5Oclose> object(H5Oopen(file, path.c_str(), H5P_DEFAULT), path);
  const Attribute attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), "no attribute " + name);
  check_h5(H5Awrite(attribute, H5T_NATIVE_INT64, &value), "cannot write attribute " + name);
}

bool has_attribute(hid_t object, const std::string& name) {
  return check_h5(H5Aexists(object, name.c_str()), "attribute " + name) > 0;
}

std::string read_attribute(hid_t object, const std::string& name) {
  const Attribute attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), "no attribute " + name);
  const Type type(H5Aget_type(attribute), "type of attribute " + name);
  require(H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0,
          "attribute {} is no text of fixed length", name);
  require_one_element(attribute, name);
  std::string value(H5Tget_size(type), '\0');
  check_h5(H5Aread(attribute, type, value.data()), "cannot read attribute " + name);
  return value == empty_text ? std::string() : value;
}

int64_t read_integer_attribute(hid_t object, const std::string& name) {
  const Attribute attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), "no attribute " + name);
  require_one_element(attribute, name);
  int64_t value = 0;
  check_h5(H5Aread(attribute, H5T_NATIVE_INT64, &value), "cannot read attribute " + name);
  return value;
}

Group create_group(const File& file, const std::string& path) {
  const Properties how = without_times(H5P_GROUP_CREATE);
  return Group(H5Gcreate2(file, path.c_str(), H5P_DEFAULT, how, H5P_DEFAULT),
               "cannot create group " + path);
}

bool is_hdf5(const std::string& path) {
  std::error_code failed;
  // Looking into a pipe would take from it.
  if (!std::filesystem::is_regular_file(path, failed)) return false;
  quiet();
  return H5Fis_hdf5(path.c_str()) > 0;
}

}  // namespace longstraw::h5
