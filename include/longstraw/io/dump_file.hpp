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

/// A new file: first what it will hold is listed, on every rank alike, then all ranks write it.
/// Rank 0 lays the file out by itself, so that the ranks together write values only: HDF5's
/// structures are never changed by several ranks.
class DumpFileWriter {
 public:
  DumpFileWriter(std::string path, const Grid& grid) : path_(std::move(path)), grid_(grid) {}

  void attribute(const std::string& name, const std::string& value);
  /// Values of rank 0.
  void number(const std::string& path, int64_t value, std::string_view meaning);
  void text(const std::string& path, const std::string& value, std::string_view meaning);
  void numbers(const std::string& path, std::span<const double> values, std::string_view meaning);
  /// Own pieces are written; what they view must stay until the file is complete. `first_row` is
  /// that of these rows in a larger array.
  void array(const DumpArray& array, std::span<const DumpPiece> pieces, int64_t first_row = 0);
  /// All pieces are written, as the rank's of [ranks, extents...].
  void contributions(const DumpArray& array, std::span<const DumpPiece> pieces);
  /// An array that is stored in other files.
  void reference(const DumpArray& array);
  /// The checksum of an array that is stored in other files.
  void set_sum(const std::string& path, uint64_t sum) { sums_[path] = sum; }

  /// Bytes of content, of all ranks.
  int64_t bytes() const;
  /// Writes to `path`.tmp, puts the file on the disk and in its place. Returns the checksums by
  /// path. Leaves nothing when it fails. Collective over the grid.
  std::map<std::string, uint64_t> complete();

 private:
  enum class Kind { number, text, array, contributions, reference };
  struct Item {
    Kind kind;
    DumpArray array;  // as stored
    std::vector<DumpPiece> pieces{};
    int64_t first_row = 0;
    int64_t number = 0;
    std::string text{};
    std::vector<double> numbers{};
  };

  std::string temporary() const { return path_ + ".tmp"; }
  void lay_out() const;
  void write_values();
  void write_item(const h5::File& file, const Item& item);
  void write_pieces(const h5::File& file, const Item& item, std::span<const DumpPiece> pieces);
  void add_sums() const;

  std::string path_;
  const Grid& grid_;
  std::vector<std::pair<std::string, std::string>> attributes_;
  std::vector<Item> items_;
  std::map<std::string, uint64_t> sums_;
};

/// Reads such a file; every rank opens it for itself.
class DumpFileReader {
 public:
  /// Refuses a file that is no such file, of another format, or whose facts do not match their
  /// checksum. For one rank.
  explicit DumpFileReader(const std::string& path);

  const std::string& path() const { return path_; }
  bool has(const std::string& path) const { return h5::exists(file_, path); }
  bool has_attribute(const std::string& name) const { return h5::has_attribute(file_, name); }
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
  void check_facts() const;

  std::string path_;
  h5::File file_;
};

/// The number of the format that is written, and the oldest that is read.
constexpr int64_t dump_format = 1;
constexpr int64_t oldest_dump_format = 1;

}  // namespace longstraw
