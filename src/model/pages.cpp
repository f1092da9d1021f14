#include "longstraw/model/pages.hpp"

#include <algorithm>

namespace longstraw {
namespace {

// Adds the rows of one page, whose first row is row `first` of all, cut where positions jump.
void add_pieces(std::vector<DumpPiece>& pieces, const Tensor& page, int64_t first,
                std::span<const int64_t> positions, Range wanted) {
  const int64_t rows = page.order() == 0 ? 0 : page.extent(0);
  for (int64_t begin = 0; begin < rows;) {
    const int64_t position = positions[first + begin];
    int64_t end = begin + 1;
    while (end < rows && positions[first + end] == position + end - begin) ++end;
    const int64_t from = std::max(position, wanted.begin);
    const int64_t to = std::min(position + end - begin, wanted.end);
    if (from < to)
      pieces.push_back({.first = (from - wanted.begin) * page.row_size(),
                        .values = page.rows(begin + from - position, begin + to - position)});
    begin = end;
  }
}

}  // namespace

PagedRows::PagedRows(Ledger& ledger, std::string_view label, DType type, int64_t page_rows,
                     int64_t width)
    : ledger_(&ledger), label_(label), type_(type), page_rows_(page_rows), width_(width) {}

void PagedRows::open(int64_t rows) {
  LONGSTRAW_ASSERT(expected_ == 0);
  expected_ = rows;
  fresh_run_ = true;
}

void PagedRows::append(const Tensor& rows) {
  LONGSTRAW_ASSERT(rows.row_size() == width_);
  const int64_t first = rows_;
  extend(rows.extent(0));
  for (int i = page_count(); i-- > 0 && range(i).end > first;) {
    const Range held = range(i);
    const int64_t begin = std::max(held.begin, first);
    copy(page(i).rows(begin - held.begin, held.size()), rows.rows(begin - first, held.end - first));
  }
}

void PagedRows::extend(int64_t rows) {
  LONGSTRAW_ASSERT(rows <= expected_);
  while (rows > 0) {
    if (fresh_run_ || pages_.back().used == capacity(page_count() - 1)) {
      const int64_t size = std::min(page_rows_, expected_);
      pages_.push_back({Field(*ledger_, label_, type_, {size, width_}), rows_, 0});
      fresh_run_ = false;
    }
    Page& page = pages_.back();
    const int64_t part = std::min(rows, page.data.tensor().extent(0) - page.used);
    page.used += part, rows -= part, rows_ += part, expected_ -= part;
  }
}

std::vector<DumpPiece> PagedRows::pieces(std::span<const int64_t> positions, Range wanted) const {
  std::vector<DumpPiece> pieces;
  for (int i = 0; i < page_count(); ++i)
    add_pieces(pieces, page(i), range(i).begin, positions, wanted);
  return pieces;
}

void PagedRows::truncate(int64_t rows) {
  LONGSTRAW_ASSERT(rows <= rows_);
  while (!pages_.empty() && pages_.back().first >= rows) pages_.pop_back();
  if (!pages_.empty())
    pages_.back().used = std::min(pages_.back().used, rows - pages_.back().first);
  rows_ = rows;
  expected_ = 0;
}

PageGradients::PageGradients(Ledger& ledger, std::string_view label, int first_page)
    : ledger_(&ledger), label_(label), first_page_(first_page) {}

void PageGradients::extend(const PagedRows& rows) {
  for (int i = first_page_ + static_cast<int>(pages_.size()); i < rows.page_count(); ++i)
    pages_.push_back(Field::zeros(*ledger_, label_, rows.type(), {rows.capacity(i), rows.width()}));
}

void PageGradients::truncate(const PagedRows& of, int64_t rows) {
  while (!pages_.empty() &&
         of.range(first_page_ + static_cast<int>(pages_.size()) - 1).begin >= rows)
    pages_.pop_back();
}

Tensor PageGradients::page(int i, int64_t used) const {
  const int at = i - first_page_;
  if (at < 0 || at >= static_cast<int>(pages_.size())) return {};
  return pages_[at].tensor().rows(0, used);
}

std::vector<DumpPiece> PageGradients::pieces(const PagedRows& of,
                                             std::span<const int64_t> positions,
                                             Range wanted) const {
  std::vector<DumpPiece> pieces;
  for (int i = 0; i < of.page_count(); ++i)
    add_pieces(pieces, page(i, of.range(i).size()), of.range(i).begin, positions, wanted);
  return pieces;
}

void PageGradients::read(const Tensor& to, const PagedRows& of, Range range) const {
  for (int i = 0; i < of.page_count(); ++i) {
    const Range held = of.range(i);
    const int64_t begin = std::max(held.begin, range.begin), end = std::min(held.end, range.end);
    if (begin >= end) continue;
    copy(to.rows(begin - range.begin, end - range.begin),
         page(i, held.size()).rows(begin - held.begin, end - held.begin));
  }
}

}  // namespace longstraw
