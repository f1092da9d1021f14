// What an HDF5 file says besides the content of its datasets: names, types, extents, attributes.
#pragma once

#include "longstraw/io/hdf5.hpp"

#include <string>
#include <vector>

namespace longstraw {

/// Paths of all datasets, in the order of their names.
std::vector<std::string> dataset_paths(const h5::File& file);

/// A checksum of all names, types, extents and attributes, but for the file's own attribute
/// `metadata_checksum`.
uint64_t described_sum(const h5::File& file);

}  // namespace longstraw
