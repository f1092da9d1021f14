#include "longstraw/model/pages.hpp"

#include <algorithm>

namespace longstraw {

PagedRows::PagedRows(Ledger& ledger, std::string_view label, DType type, int64_t page_rows,
                     int64_t width)
    : ledger_(&ledger), label_(label), type_(type), page_rows_(page_rows), width_(width) {}

void PagedRows::open(int64_t rows) {
  LONGSTRAW_ASSERT(expected_ == 0);
  expected_ = rows;
  fresh_run_ = true;
}

void PagedRows::append(const Tensor& rows) {
  int64_t done = 0;
  const int64_t count = rows.extent(0);
  LONGSTRAW_ASSERT(count <= expected_ && rows.row_size() == width_);
  while (done < count) {
    if (fresh_run_ || pages_.back().used == capacity(page_count() - 1)) {
      const int64_t size = std::min(page_rows_, expected_);
      pages_.push_back({Field(*ledger_, label_, type_, {size, width_}), rows_, 0});
      fresh_run_ = false;
    }
    Page& page = pages_.back();
    const int64_t part = std::min(count - done, page.data.tensor().extent(0) - page.used);
    copy(page.data.tensor().rows(page.used, page.used + part), rows.rows(done, done + part));
    page.used += part, done += part, rows_ += part, expected_ -= part;
  }
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
