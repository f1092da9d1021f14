// The header of one safetensors file: 8 bytes of length, JSON, then the tensors one after the
// other.
#pragma once

#include "longstraw/io/checkpoint.hpp"

namespace longstraw {

/// Layout of the file at `path`, which is number `file` of its checkpoint. Refuses a header or a
/// tensor that ends beyond the file, tensors that overlap or leave holes, bytes after the last one,
/// unknown types, extents that do not fit the bytes, and names given twice.
std::map<std::string, StoredTensor> read_safetensors_header(const std::string& path, int file);

/// Bytes of the header with its length, where the first tensor starts.
int64_t safetensors_data_begin(const std::string& path);

}  // namespace longstraw
