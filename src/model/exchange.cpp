#include "longstraw/model/exchange.hpp"

#include "longstraw/kernels/activation.hpp"

#include <algorithm>
#include <numeric>

namespace longstraw {

QueryExchange::QueryExchange(const Context& context, const Block& block, int parts, int index)
    : context_(context) {
  int64_t slice_begin = block.positions.begin;
  for (int r = 0; r < context.grid.size(); ++r) {
    const Range part = part_of(block.slice_sizes[r], parts, index);
    if (r == context.grid.rank()) mine_ = part;
    counts_.push_back(part.size());
    for (int64_t i = part.begin; i < part.end; ++i) positions_.push_back(slice_begin + i);
    slice_begin += block.slice_sizes[r];
  }
}

int QueryExchange::parts_for(const Block& block, int64_t most) {
  const int64_t parts = (block.tokens() + most - 1) / most;
  const int64_t longest = *std::max_element(block.slice_sizes.begin(), block.slice_sizes.end());
  return static_cast<int>(std::clamp<int64_t>(parts, 1, std::max<int64_t>(longest, 1)));
}

Field QueryExchange::gather(const Tensor& rows) const {
  Field all(context_.ledger, "scratch", rows.type(), {gathered(), rows.row_size()});
  context_.grid.all_gather_rows(all, rows, counts_);
  return all;
}

Field QueryExchange::give_back(const Tensor& all) const {
  const int64_t width = all.row_size(), row_bytes = width * size_of(all.type());
  Field parts(context_.ledger, "scratch", all.type(), {context_.grid.size(), mine_.size(), width});
  std::vector<int64_t> send = counts_, receive(counts_.size(), mine_.size() * row_bytes);
  for (auto& bytes : send) bytes *= row_bytes;
  context_.grid.all_to_all(parts.tensor().raw(), receive, all.raw(), send);
  return parts;
}

ColumnExchange::ColumnExchange(const Context& context, const Block& block, ColumnPlan plan)
    : context_(context), slice_sizes_(block.slice_sizes), plan_(std::move(plan)) {}

int64_t ColumnExchange::width(int rank) const {
  const auto& ranges = plan_[rank];
  return std::accumulate(ranges.begin(), ranges.end(), int64_t{0},
                         [](int64_t sum, const Range& range) { return sum + range.size(); });
}

Field ColumnExchange::to_columns(const Tensor& rows) const {
  const int ranks = context_.grid.size(), me = context_.grid.rank();
  const int64_t element = size_of(rows.type()), tokens = rows.extent(0);
  std::vector<int64_t> send(ranks), receive(ranks);
  int64_t all_columns = 0, block_tokens = 0;
  for (int r = 0; r < ranks; ++r) {
    send[r] = tokens * width(r) * element;
    receive[r] = slice_sizes_[r] * width(me) * element;
    all_columns += width(r), block_tokens += slice_sizes_[r];
  }
  Field packed(context_.ledger, "scratch", rows.type(), {tokens * all_columns});
  int64_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    const int64_t wide = width(r);
    const Tensor to = packed.tensor().rows(at, at + tokens * wide).reshape({tokens, wide});
    int64_t column = 0;
    for (const Range& range : plan_[r]) {
      copy(to.columns(column, column + range.size()), rows.columns(range.begin, range.end));
      column += range.size();
    }
    at += tokens * wide;
  }
  Field columns = context_.activation({block_tokens, width(me)});
  context_.grid.all_to_all(columns.tensor().raw(), receive, packed.tensor().raw(), send);
  return columns;
}

void ColumnExchange::add_to_rows(const Tensor& rows, const Tensor& columns) const {
  const int ranks = context_.grid.size(), me = context_.grid.rank();
  const int64_t element = size_of(rows.type()), tokens = rows.extent(0);
  std::vector<int64_t> send(ranks), receive(ranks);
  int64_t all_columns = 0;
  for (int r = 0; r < ranks; ++r) {
    send[r] = slice_sizes_[r] * width(me) * element;
    receive[r] = tokens * width(r) * element;
    all_columns += width(r);
  }
  Field packed(context_.ledger, "scratch", rows.type(), {tokens * all_columns});
  context_.grid.all_to_all(packed.tensor().raw(), receive, columns.raw(), send);
  int64_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    const int64_t wide = width(r);
    const Tensor from = packed.tensor().rows(at, at + tokens * wide).reshape({tokens, wide});
    int64_t column = 0;
    for (const Range& range : plan_[r]) {
      add(context_.stream, rows.columns(range.begin, range.end),
          from.columns(column, column + range.size()));
      column += range.size();
    }
    at += tokens * wide;
  }
}

}  // namespace longstraw
