// A dump: the state of a run between two ticks, in one HDF5 file and, for the prompt's state, in
// files beside it that later dumps of the same group refer to.
#pragma once

#include "longstraw/io/dump_file.hpp"

#include <memory>
#include <optional>

namespace longstraw {

/// What is on the disk of the arrays that grow within a life.
struct GrownArrays {
  struct Array {
    int64_t rows = 0;
    uint64_t sum = 0;
  };
  std::string life;
  std::vector<std::string> files;  // names, in the dump's folder
  std::map<std::string, Array> arrays;
};

/// Writes one dump: fields are listed, then written at once by `complete`, until when they must
/// stay as they are.
class DumpWriter : public DumpFields {
 public:
  /// The dump after `ticks` ticks, in `folder`. `stored` is what earlier dumps there hold.
  DumpWriter(const std::string& folder, int64_t ticks, const Grid& grid, GrownArrays stored);

  bool restoring() const override { return false; }
  void number(const std::string& path, int64_t& value, Limits limits,
              std::string_view meaning) override;
  void text(const std::string& path, std::string& value, std::string_view meaning) override;
  void numbers(const std::string& path, std::vector<double>& values,
               std::string_view meaning) override;
  void placed(const DumpArray& array, std::span<const DumpPiece> pieces) override;
  void grown(const DumpArray& array, std::span<const DumpPiece> pieces,
             const std::string& life) override;
  void contributed(const DumpArray& array, std::span<const DumpPiece> pieces) override;

  /// Puts the dump in its place. Returns what is now on the disk of the arrays that grow.
  /// Collective over the grid.
  GrownArrays complete();
  int64_t bytes() const { return main_.bytes() + (segment_ ? segment_->bytes() : 0); }
  /// File name in the folder.
  const std::string& name() const { return name_; }

 private:
  void write_rows(const DumpArray& array, std::span<const DumpPiece> pieces, int64_t stored);

  std::string folder_;
  std::string name_;
  int64_t ticks_;
  const Grid& grid_;
  GrownArrays stored_;
  bool refers_ = false;  // to arrays that grow
  DumpFileWriter main_;
  std::unique_ptr<DumpFileWriter> segment_;  // rows that are new
};

/// Of what the checksums are computed when a dump is opened: of all content, of that in the dump's
/// own file, or of none. Only for all must the files that the dump refers to be there.
enum class Content { checked, own_checked, unchecked };

/// Reads one dump back.
class DumpReader : public DumpFields {
 public:
  /// Opens the dump and the files it refers to. Refuses, on all ranks and naming file and dataset,
  /// what is not whole. Collective over `grid`.
  DumpReader(const std::string& path, const Grid& grid, Content content = Content::checked);

  bool restoring() const override { return true; }
  void number(const std::string& path, int64_t& value, Limits limits,
              std::string_view meaning) override;
  void text(const std::string& path, std::string& value, std::string_view meaning) override;
  void numbers(const std::string& path, std::vector<double>& values,
               std::string_view meaning) override;
  void placed(const DumpArray& array, std::span<const DumpPiece> pieces) override;
  void grown(const DumpArray& array, std::span<const DumpPiece> pieces,
             const std::string& life) override;
  void contributed(const DumpArray& array, std::span<const DumpPiece> pieces) override;

  const DumpFileReader& file() const { return *main_; }
  /// Files that the dump refers to and that are there.
  const std::vector<std::unique_ptr<DumpFileReader>>& segments() const { return segments_; }
  /// Paths of those that are not.
  const std::vector<std::string>& missing() const { return missing_; }
  /// What dumps in the same folder need not write again.
  const GrownArrays& stored() const { return stored_; }

 private:
  void check_extents(const DumpFileReader& file, const std::string& path,
                     const std::vector<int64_t>& extents) const;
  void open_segments(Content content);
  void check_content(Content content) const;
  void read_sum(const std::string& path, const DumpPiece& piece, int64_t size, int64_t ranks) const;

  const Grid& grid_;
  std::unique_ptr<DumpFileReader> main_;
  std::vector<std::unique_ptr<DumpFileReader>> segments_;
  std::vector<std::string> missing_;
  GrownArrays stored_;
};

}  // namespace longstraw
