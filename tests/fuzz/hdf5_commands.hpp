// Files of HDF5 that commands lay out, for the fuzz targets that read such files.
#pragma once

#include "longstraw/io/hdf5.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <string>

namespace longstraw::fuzz {

/// The input, a byte a choice; behind its end all choices are the first.
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

inline constexpr std::array<hsize_t, 12> extents = {0,
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

inline h5::Type type_of(Commands& commands) {
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

/// Of the first `known` extents.
inline h5::Space space_of(Commands& commands, size_t known = extents.size()) {
  const size_t order = commands.below(6);
  if (order == 0) return {H5Screate(H5S_SCALAR), "space"};
  if (order == 5) return {H5Screate(H5S_NULL), "space"};
  std::array<hsize_t, 4> sizes{};
  for (size_t d = 0; d < order; ++d) sizes[d] = extents[commands.below(known)];
  return {H5Screate_simple(static_cast<int>(order), sizes.data(), nullptr), "space"};
}

/// How a dataset of these extents is stored.
inline h5::Properties layout_of(Commands& commands, const h5::Space& space) {
  h5::Properties properties(H5Pcreate(H5P_DATASET_CREATE), "properties");
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
  return properties;
}

/// A link `to` what is at `from`, in the file or not.
inline void add_link(const h5::File& file, Commands& commands, const std::string& from,
                     const std::string& to) {
  const auto check = [&](herr_t code) { h5::check_h5(code, to); };
  const char *at = from.c_str(), *name = to.c_str();
  switch (commands.below(3)) {
    case 0: return check(H5Lcreate_hard(file, at, file, name, H5P_DEFAULT, H5P_DEFAULT));
    case 1: return check(H5Lcreate_soft(at, file, name, H5P_DEFAULT, H5P_DEFAULT));
    default: check(H5Lcreate_external("/dev/zero", at, file, name, H5P_DEFAULT, H5P_DEFAULT));
  }
}

}  // namespace longstraw::fuzz
