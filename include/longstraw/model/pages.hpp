// Rows of retained state, one a token, kept in pages by the rank that computed them.
#pragma once

#include "longstraw/core/dump_fields.hpp"
#include "longstraw/core/field.hpp"
#include "longstraw/core/split.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace longstraw {

/// A growing list of rows of one width. Each page is an allocation of its own, of exactly the rows
/// it will hold. `open` announces a run of rows (a prompt's, or a branch's), which starts a new
/// page; `truncate` drops whole runs or their tail.
class PagedRows {
 public:
  PagedRows(Ledger& ledger, std::string_view label, DType type, int64_t page_rows, int64_t width);

  /// The next `rows` rows will be appended in order, in pages of their own.
  void open(int64_t rows);
  /// Appends rows [n, width].
  void append(const Tensor& rows);
  /// Appends rows whose values are undefined until they are written through `page`.
  void extend(int64_t rows);
  /// Keeps the first `rows` rows and the pages that hold them; ends the run.
  void truncate(int64_t rows);

  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }
  std::string_view label() const { return label_; }
  DType type() const { return type_; }
  int page_count() const { return static_cast<int>(pages_.size()); }
  /// Rows of page `i`, by index over all pages: what it holds now, and what it was made for.
  Range range(int i) const { return {pages_[i].first, pages_[i].first + pages_[i].used}; }
  int64_t capacity(int i) const { return pages_[i].data.tensor().extent(0); }
  /// The rows that page `i` holds, [used, width].
  Tensor page(int i) const { return pages_[i].data.tensor().rows(0, pages_[i].used); }
  /// The rows at global positions `wanted` as pieces of an array [wanted.size(), width]; row i is
  /// that of position `positions[i]`.
  std::vector<DumpPiece> pieces(std::span<const int64_t> positions, Range wanted) const;

 private:
  struct Page {
    Field data;
    int64_t first = 0;
    int64_t used = 0;
  };

  Ledger* ledger_;
  std::string_view label_;
  DType type_;
  int64_t page_rows_;
  int64_t width_;
  int64_t rows_ = 0;
  int64_t expected_ = 0;  // rows of the open run that are still to come
  bool fresh_run_ = true;
  std::vector<Page> pages_;
};

/// Gradient of paged rows, in the same pages: those from `first_page` on. `exact` keeps all pages'
/// gradients, `frozen` only those of the branch.
class PageGradients {
 public:
  PageGradients(Ledger& ledger, std::string_view label, int first_page);

  /// Makes zero gradients for the pages of `rows` that have none yet.
  void extend(const PagedRows& rows);
  /// Drops the gradients of pages that hold nothing before row `rows` of `of`.
  void truncate(const PagedRows& of, int64_t rows);

  /// Gradient of the first `used` rows of page `i`; empty for a page without.
  Tensor page(int i, int64_t used) const;
  /// As `PagedRows::pieces`, of the gradient.
  std::vector<DumpPiece> pieces(const PagedRows& of, std::span<const int64_t> positions,
                                Range wanted) const;
  /// Copies the gradient of rows `range` of `of` to `to` [range.size(), width].
  void read(const Tensor& to, const PagedRows& of, Range range) const;

 private:
  Ledger* ledger_;
  std::string_view label_;
  int first_page_;
  std::vector<Field> pages_;  // pages_[i] belongs to page first_page_ + i
};

}  // namespace longstraw
