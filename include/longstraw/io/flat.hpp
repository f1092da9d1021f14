// One-dimensional datasets of numbers in HDF5 files that are not to be trusted, read and written in
// parts.
#pragma once

#include "longstraw/io/hdf5.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace longstraw {

/// A dataset for reading, of T = int32_t, int64_t, uint8_t or double. Whoever asks for no more than
/// `size` elements allocates no more than the file holds.
template <class T>
class FlatReader {
 public:
  /// Refuses, naming `file` and `path`, what is not there, of another type or more than one
  /// dimension; compressed, in chunks beyond 16 MiB, outside the file, or not wholly in it.
  FlatReader(const h5::File& handle, const std::string& file, const std::string& path);

  int64_t size() const { return size_; }
  /// `FILE: dataset PATH`, for messages.
  const std::string& name() const { return name_; }
  /// Elements from `begin` on.
  void read(int64_t begin, std::span<T> to) const;

 private:
  std::string name_;
  h5::Dataset set_;
  int64_t size_ = 0;
};

/// What a dataset is, for people who look at the file.
struct FlatMeaning {
  std::string meaning;
  int64_t chunk = 1024;  ///< elements; fewer where there are not as many
};

/// A dataset that grows, in chunks with a checksum each.
template <class T>
class FlatWriter {
 public:
  /// `handle` must outlive the writer.
  FlatWriter(const h5::File& handle, const std::string& path, const FlatMeaning& meaning);

  int64_t size() const { return written_ + std::ssize(waiting_); }
  void append(std::span<const T> values);
  void append(T value) { append(std::span<const T>(&value, 1)); }
  /// Writes what waits for a chunk to be full. Nothing is appended afterwards.
  void finish();

 private:
  void create(int64_t chunk);
  void write(std::span<const T> values);

  const h5::File& handle_;
  std::string path_;
  FlatMeaning meaning_;
  h5::Dataset set_;
  std::vector<T> waiting_;
  int64_t written_ = 0;
};

}  // namespace longstraw
