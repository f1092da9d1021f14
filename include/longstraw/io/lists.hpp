// Lists of any lengths in an HDF5 file: dataset NAME holds the elements of all lists one after the
// other, dataset NAME_offsets where each begins and, last, where all end.
#pragma once

#include "longstraw/core/split.hpp"
#include "longstraw/io/flat.hpp"

#include <string>
#include <vector>

namespace longstraw {

/// Where each of some lists begins among the elements of all. Nothing about it is taken on trust.
class OffsetsReader {
 public:
  /// `path` is that of the offsets.
  OffsetsReader(const h5::File& handle, const std::string& file, const std::string& path);

  /// How many lists there are.
  int64_t size() const { return offsets_.size() - 1; }
  /// Elements of the lists `which`, of `elements` in all: refuses offsets that fall, that leave
  /// [0, elements], or that do not begin and end with it.
  std::vector<Range> ranges(Range which, int64_t elements) const;
  const std::string& name() const { return offsets_.name(); }

 private:
  FlatReader<int64_t> offsets_;
};

template <class T>
class ListReader {
 public:
  /// Refuses other than `size` lists.
  ListReader(const h5::File& handle, const std::string& file, const std::string& path,
             int64_t size);

  /// The lists `which`, which are read at once.
  std::vector<std::vector<T>> lists(Range which) const;
  const std::string& name() const { return values_.name(); }

 private:
  FlatReader<T> values_;
  OffsetsReader offsets_;
};

template <class T>
class ListWriter {
 public:
  ListWriter(const h5::File& handle, const std::string& path, const FlatMeaning& meaning)
      : values_(handle, path, meaning),
        offsets_(handle, path + "_offsets",
                 {.meaning = str("where each entry of {} begins, in elements; the last element "
                                 "tells where all end",
                                 path)}) {
    offsets_.append(0);
  }

  /// Adds elements to the list that `end_list` will close.
  void append(std::span<const T> values) { values_.append(values); }
  void end_list() { offsets_.append(values_.size()); }
  void add_list(std::span<const T> values) {
    append(values);
    end_list();
  }
  void finish() {
    values_.finish();
    offsets_.finish();
  }

 private:
  FlatWriter<T> values_;
  FlatWriter<int64_t> offsets_;
};

}  // namespace longstraw
