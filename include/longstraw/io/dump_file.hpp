// One HDF5 file of a dump: datasets that say what they are, each with a checksum of its content,
// and a checksum over everything else. The file does not depend on the number of ranks, but for
// arrays that are kept by contributing rank.
#pragma once

#include "longstraw/comm/grid.hpp"
#include "longstraw/core/dump_fields.hpp"
#include "longstraw/io/checksum.hpp"
#include "longstraw/io/hdf5.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace longstraw {

/// Writes a new file, all ranks together. Every member function is collective over the grid.
class DumpFileWriter {
 public:
  /// Writes to `path`.tmp until it is completed.
  DumpFileWriter(const std::string& path, const Grid& grid);
  /// Removes what was not completed.
  ~DumpFileWriter();
  DumpFileWriter(const DumpFileWriter&) = delete;
  DumpFileWriter& operator=(const DumpFileWriter&) = delete;

  void attribute(const std::string& name, const std::string& value);
  void attribute(const std::string& name, int64_t value);
  /// Values of rank 0.
  void number(const std::string& path, int64_t value, std::string_view meaning);
  void text(const std::string& path, const std::string& value, std::string_view meaning);
  /// Own pieces are written. `first_row` is that of the stored rows in a larger array.
  void array(const DumpArray& array, std::span<const DumpPiece> pieces, int64_t first_row = 0);
  /// All pieces are written, as the rank's of [ranks, extents...].
  void contributions(const DumpArray& array, std::span<const DumpPiece> pieces);
  /// An array that is stored in other files, with this checksum.
  void reference(const DumpArray& array);
  void set_sum(const std::string& path, uint64_t sum);

  /// Adds checksums, puts the file on the disk and in its place. Returns the checksums by path.
  std::map<std::string, uint64_t> complete();
  /// Bytes of content written so far, of all ranks.
  int64_t bytes() const { return bytes_; }

 private:
  h5::Dataset create(const DumpArray& array, hid_t type, const h5::Space& space);
  void write_pieces(const h5::Dataset& set, const DumpArray& array,
                    std::span<const DumpPiece> pieces, int64_t sum_offset);
  void add_sums_and_close();

  const Grid& grid_;
  std::string path_;
  h5::File file_;
  bool completed_ = false;
  int64_t bytes_ = 0;
  std::map<std::string, uint64_t> sums_;  // this rank's part
  std::map<std::string, uint64_t> given_;
};

/// Reads such a file; every rank opens it for itself.
class DumpFileReader {
 public:
  /// Refuses a file that is no such file, of another format, or whose facts do not match their
  /// checksum. For one rank.
  explicit DumpFileReader(const std::string& path);

  const std::string& path() const { return path_; }
  bool has(const std::string& path) const { return h5::exists(file_, path); }
  std::string attribute(const std::string& name) const;
  int64_t number(const std::string& path) const;
  std::string text(const std::string& path) const;
  std::vector<int64_t> extents(const std::string& path) const;
  /// First row of what is stored of a larger array.
  int64_t first_row(const std::string& path) const;
  std::string meaning(const std::string& path) const;
  /// Whether the array is stored in other files.
  bool is_reference(const std::string& path) const;
  /// Elements from `first` on of the array at `path`, which must be of the type of `to`.
  void read(const std::string& path, int64_t first, const Tensor& to) const;
  std::vector<double> numbers(const std::string& path) const;

  /// All datasets.
  std::vector<std::string> paths() const;
  /// Bytes of a dataset's content in this file.
  int64_t bytes(const std::string& path) const;
  uint64_t stored_sum(const std::string& path) const;
  /// The checksum of part `part` of `parts` of the dataset's content.
  uint64_t computed_sum(const std::string& path, int parts, int part) const;

 private:
  std::string path_;
  h5::File file_;
};

/// The number of the format that is written, and the oldest that is read.
constexpr int64_t dump_format = 1;
constexpr int64_t oldest_dump_format = 1;

}  // namespace longstraw
