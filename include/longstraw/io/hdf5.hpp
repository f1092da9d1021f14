// HDF5 handles that close themselves, and the check around every HDF5 call.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/core/check.hpp"
#include "longstraw/core/split.hpp"
#include "longstraw/core/tensor.hpp"

#include <hdf5.h>

#include <string>
#include <utility>
#include <vector>

namespace longstraw::h5 {

/// Returns `code` unless it is negative; then throws what HDF5 says about it.
hid_t check_h5(hid_t code, const std::string& what);

/// Owner of one HDF5 handle. Move-only.
template <herr_t (*close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, const std::string& what) : id_(check_h5(id, what)) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close(id_);
  }
  operator hid_t() const { return id_; }
  /// Closes now, so that a failure (a full disk) is seen.
  void reset(const std::string& what) {
    if (id_ >= 0) check_h5(close(std::exchange(id_, H5I_INVALID_HID)), what);
  }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

/// As H5Fclose, having taken room on the disk for all of a file that one rank writes. Frees the
/// handle also where there is none; that is then a failure, and what HDF5 still holds is lost.
herr_t close_file(hid_t file);

using File = Handle<close_file>;
using Group = Handle<H5Gclose>;
using Dataset = Handle<H5Dclose>;
using Space = Handle<H5Sclose>;
using Type = Handle<H5Tclose>;
using Attribute = Handle<H5Aclose>;
using Properties = Handle<H5Pclose>;

/// A file for reading.
File open_file(const std::string& path);
/// A new file; an older one of this name is replaced.
File create_file(const std::string& path);

/// An existing file, whose values all ranks write together. Collective over `grid`.
File modify_parallel_file(const std::string& path, const Grid& grid);
/// An existing file, for one rank to write.
File modify_file(const std::string& path);

/// Creation properties of a file, group or dataset (`kind`) without the time of day, so that the
/// same content is the same file.
Properties without_times(hid_t kind);
/// The type of a text of this length.
Type text_type(const std::string& value);
/// Memory type of `type`.
hid_t memory_type(DType type);

/// Extents of the dataset at `path`; empty for a scalar.
std::vector<int64_t> extents(const File& file, const std::string& path);
/// All elements of the dataset at `path` as double.
std::vector<double> read_all(const File& file, const std::string& path);
/// Selects elements `range` (row-major) of an array with these extents.
void select_flat(const Space& space, const std::vector<int64_t>& extents, Range range);
/// Writes or reads elements from `first` on, at most 1 GiB a call. `values` is contiguous.
void write_flat(const Dataset& set, int64_t first, const Tensor& values, const std::string& what);
void read_flat(const Dataset& set, int64_t first, const Tensor& values, const std::string& what);

/// Names of the links in group `path`, sorted.
std::vector<std::string> names(const File& file, const std::string& path);
bool exists(const File& file, const std::string& path);

void write_attribute(hid_t object, const std::string& name, const std::string& value);
void write_attribute(hid_t object, const std::string& name, int64_t value);
/// Replaces the value of an attribute of the object at `path`.
void set_attribute(const File& file, const std::string& path, const std::string& name,
                   int64_t value);
bool has_attribute(hid_t object, const std::string& name);
std::string read_attribute(hid_t object, const std::string& name);
int64_t read_integer_attribute(hid_t object, const std::string& name);

Group create_group(const File& file, const std::string& path);

/// Whether the regular file `path` begins as HDF5 files do.
bool is_hdf5(const std::string& path);

}  // namespace longstraw::h5
