#include "attention/tiles.hpp"

namespace longstraw::attention_tiles {

double visible_pairs(std::span<const int64_t> positions, std::span<const KeyPage> pages) {
  double pairs = 0;
  for (const KeyPage& page : pages) {
    const auto& keys = page.positions;
    if (keys.empty()) continue;
    // Queries from `whole` on see the whole page; only those before it need a search.
    const auto none = std::lower_bound(positions.begin(), positions.end(), keys.front());
    const auto whole = std::lower_bound(none, positions.end(), keys.back());
    pairs += static_cast<double>(positions.end() - whole) * static_cast<double>(keys.size());
    auto seen = keys.begin();
    for (auto query = none; query != whole; ++query) {
      seen = std::upper_bound(seen, keys.end(), *query);
      pairs += static_cast<double>(seen - keys.begin());
    }
  }
  return pairs;
}

namespace {

void check_page(const KeyPage& page, const Tensor& q, DType type) {
  LONGSTRAW_ASSERT(page.keys.order() == 3 && page.values.order() == 3);
  LONGSTRAW_ASSERT(compute_type(page.keys.type()) == type);
  LONGSTRAW_ASSERT(compute_type(page.values.type()) == type);
  LONGSTRAW_ASSERT(page.dkeys.empty() || page.dkeys.type() == type);
  LONGSTRAW_ASSERT(page.dvalues.empty() || page.dvalues.type() == type);
  LONGSTRAW_ASSERT(page.keys.extent(2) == q.extent(2) && page.values.extent(2) == q.extent(2));
  LONGSTRAW_ASSERT(page.values.extent(1) == page.keys.extent(1));
  LONGSTRAW_ASSERT(page.keys.extent(0) == static_cast<int64_t>(page.positions.size()));
  LONGSTRAW_ASSERT(page.values.extent(0) == page.keys.extent(0));
  LONGSTRAW_ASSERT(page.dkeys.empty() || page.dkeys.extent(0) == page.keys.extent(0));
  LONGSTRAW_ASSERT(page.dvalues.empty() || page.dvalues.extent(0) == page.keys.extent(0));
}

}  // namespace

int64_t widened_size(std::span<const KeyPage> pages, int64_t dim) {
  const bool any = std::any_of(pages.begin(), pages.end(), [](const KeyPage& page) {
    return page.keys.type() == DType::bfloat16 || page.values.type() == DType::bfloat16;
  });
  return any ? 2 * tile_keys * dim : 0;
}

Shape checked_shape(const Tensor& q, const Tensor& lse, std::span<const int64_t> positions,
                    std::span<const KeyPage> pages) {
  LONGSTRAW_ASSERT(q.order() == 3 && q.extent(0) == static_cast<int64_t>(positions.size()));
  LONGSTRAW_ASSERT(lse.contiguous() && lse.size() == q.extent(0) * q.extent(1));
  LONGSTRAW_ASSERT(compute_type(q.type()) == lse.type());
  for (const KeyPage& page : pages) check_page(page, q, lse.type());
  const int64_t kv_heads = pages.empty() ? q.extent(1) : pages.front().keys.extent(1);
  Shape shape(q.extent(0), q.extent(1), kv_heads, q.extent(2));
  shape.rounds = q.type() == DType::bfloat16;
  return shape;
}

}  // namespace longstraw::attention_tiles
