// Who sends which rows and columns to whom: queries to every rank and partial results back
// (attention), token slices to head slices and back (gated delta rule).
#pragma once

#include "longstraw/model/block.hpp"
#include "longstraw/model/context.hpp"

#include <cstdint>
#include <vector>

namespace longstraw {

/// Some of a block's queries, the same share of every rank's slice, on their way to all ranks.
class QueryExchange {
 public:
  /// Part `index` of `parts` of each slice of `block`.
  QueryExchange(const Context& context, const Block& block, int parts, int index);
  /// Parts that keep the gathered queries of a block at or below `most` where a rank has enough.
  static int parts_for(const Block& block, int64_t most);

  /// This rank's queries as rows of its slice.
  Range mine() const { return mine_; }
  int64_t gathered() const { return static_cast<int64_t>(positions_.size()); }
  /// Global positions of the gathered queries, ascending.
  std::span<const int64_t> positions() const { return positions_; }

  /// Rows [mine().size(), width] of every rank, one after the other [gathered(), width].
  /// Collective over the grid.
  Field gather(const Tensor& rows) const;
  /// What each rank computed for this rank's queries: from `all` [gathered(), width] to
  /// [ranks, mine().size(), width]. Collective over the grid.
  Field give_back(const Tensor& all) const;

 private:
  Context context_;
  std::vector<int64_t> counts_;
  Range mine_;
  std::vector<int64_t> positions_;
};

/// Which columns of a token's row each rank needs: some ranges of columns, side by side.
using ColumnPlan = std::vector<std::vector<Range>>;

/// Re-cuts rows that are split by tokens into rows split by columns, and back.
class ColumnExchange {
 public:
  ColumnExchange(const Context& context, const Block& block, ColumnPlan plan);

  /// From `rows` [slice tokens, all columns] to [block tokens, this rank's columns].
  /// Collective over the grid.
  Field to_columns(const Tensor& rows) const;
  /// Adds [block tokens, this rank's columns] of every rank to `rows` [slice tokens, all columns],
  /// in the order of ranks: columns that several ranks hold are summed. Collective over the grid.
  void add_to_rows(const Tensor& rows, const Tensor& columns) const;

 private:
  int64_t width(int rank) const;

  Context context_;
  std::vector<int64_t> slice_sizes_;
  ColumnPlan plan_;
};

}  // namespace longstraw
