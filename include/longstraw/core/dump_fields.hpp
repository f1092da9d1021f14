// What a dump holds, as the owners of the state tell it: one routine an owner lists its fields, and
// serves for writing them and for filling them again. Where they are stored is left to others.
#pragma once

#include "longstraw/core/split.hpp"
#include "longstraw/core/tensor.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace longstraw {

/// An array of the dump, as it is over all ranks.
struct DumpArray {
  std::string path;  ///< groups and name: "optimizer/first_moment/lm_head.weight"
  DType type = DType::float32;
  std::vector<int64_t> extents;
  std::string meaning;  ///< of its dimensions and values
};

/// Consecutive elements of such an array that this rank holds.
struct DumpPiece {
  int64_t first = 0;  ///< place of the first one in the whole array, row-major
  Tensor values;      ///< contiguous
  bool own = true;    ///< false: a lower rank holds these elements too, and counts as their owner
};

/// What a number of a dump can be; one that is filled is refused, naming the dump, before it is
/// used where it is not. The most that is not told leaves room for sums of two.
struct Limits {
  int64_t least = 0;
  int64_t most = int64_t{1} << 62;
};
inline Limits exactly(int64_t value) { return {value, value}; }

/// Takes the fields that its caller lists, or fills them. Every rank lists the same fields in the
/// same order; every member function is collective over the ranks.
class DumpFields {
 public:
  virtual ~DumpFields() = default;

  /// Whether fields are filled (from a dump) rather than taken.
  virtual bool restoring() const = 0;
  /// A number, a text, a list of numbers: the same on every rank.
  virtual void number(const std::string& path, int64_t& value, Limits limits,
                      std::string_view meaning) = 0;
  virtual void text(const std::string& path, std::string& value, std::string_view meaning) = 0;
  virtual void numbers(const std::string& path, std::vector<double>& values,
                       std::string_view meaning) = 0;
  /// An array of which every element is held somewhere. Own pieces cover it once.
  virtual void placed(const DumpArray& array, std::span<const DumpPiece> pieces) = 0;
  /// The same, whose rows (first dimension) never change once they are there, as long as `life` is
  /// the same: a later dump of that life stores the rows that came since. It may list fewer.
  virtual void grown(const DumpArray& array, std::span<const DumpPiece> pieces,
                     const std::string& life) = 0;
  /// An array that is the sum of what the ranks hold. On as many ranks as before each gets back
  /// what it held; on others the owner of an element gets the sum, and the rest are zero.
  virtual void contributed(const DumpArray& array, std::span<const DumpPiece> pieces) = 0;
};

/// Pieces of the array that is elements `array` of a flat one: what this rank holds of it in
/// `values`, which are the flat elements from `begin` on. Own are those in `owned`.
std::vector<DumpPiece> flat_pieces(Range array, const Tensor& values, int64_t begin, Range owned);

}  // namespace longstraw
