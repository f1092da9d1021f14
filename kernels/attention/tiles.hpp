// How attention is cut into tiles, and the vectorised passes over the rows of a tile of scores.
//
// A tile of queries holds the rows of all heads that share one key and value head: row r is query
// r / group, head r % group of that group. A tile of keys is a stretch of one page that the last
// query of the tile of queries sees; queries that see only its beginning have the rest as zeros.
#pragma once

#include "longstraw/kernels/attention.hpp"
#include "math.hpp"
#include "storage.hpp"

#include <algorithm>
#include <limits>

namespace longstraw::attention_tiles {

/// Rows of a tile of queries and keys of a tile of keys. Of {128, 256, 512} x {128, 256, 512, 1024}
/// the fastest together with 512 x 1024, which takes four times the workspace: on one Zen 5 core
/// 167, 195, 202 GFLOP/s forward at dim 64, 128, 256, where sgemm has 230.
constexpr int64_t tile_rows = 256;
constexpr int64_t tile_keys = 512;
/// Keys of a tile of which some queries see only a part: smaller, as what they do not see is
/// wasted.
constexpr int64_t straddling_keys = 256;

struct Shape {
  int64_t queries, heads, kv_heads, dim;
  bool rounds = false;  ///< probabilities and gradients of scores, to bfloat16, before products

  Shape(int64_t queries_, int64_t heads_, int64_t kv_heads_, int64_t dim_)
      : queries(queries_), heads(heads_), kv_heads(kv_heads_), dim(dim_) {
    require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0,
            "{} heads cannot share {} key and value heads evenly - check the model's configuration",
            heads, kv_heads);
  }
  /// Heads that share one key and value head.
  int64_t group() const { return heads / kv_heads; }
  int64_t tile_queries() const {
    return std::min(std::max<int64_t>(tile_rows / group(), 1), std::max<int64_t>(queries, 1));
  }
  int64_t rows() const { return tile_queries() * group(); }
};

/// Queries [first, first + positions.size()) for one key and value head.
struct QueryTile {
  int64_t kv_head;
  int64_t first;
  std::span<const int64_t> positions;
  int64_t rows(const Shape& shape) const {
    return static_cast<int64_t>(positions.size()) * shape.group();
  }
};

/// Keys [first, first + count) of a page. Queries before `first_query` (of the tile) see none.
struct KeyTile {
  std::span<const int64_t> positions;
  int64_t first;
  int64_t count;
  int64_t first_query;
  bool whole;  ///< every query of the tile sees every key
  /// How many of the keys a query at `position` sees.
  int64_t visible(int64_t position) const {
    return whole
               ? count
               : std::upper_bound(positions.begin(), positions.end(), position) - positions.begin();
  }
};

/// Calls `body(tile)` for every tile of queries: by key head, then in order.
template <class Body>
void for_query_tiles(const Shape& shape, std::span<const int64_t> positions, Body&& body) {
  for (int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head)
    for (int64_t first = 0; first < shape.queries; first += shape.tile_queries()) {
      const int64_t count = std::min(shape.tile_queries(), shape.queries - first);
      body(QueryTile{kv_head, first, positions.subspan(first, count)});
    }
}

/// Calls `body(page, tile)` for every tile of keys that some query of `queries` sees, in order.
template <class Body>
void for_key_tiles(const QueryTile& queries, std::span<const KeyPage> pages, Body&& body) {
  const auto& at = queries.positions;
  for (const KeyPage& page : pages) {
    const auto begin = page.positions.begin(), end = page.positions.end();
    const int64_t seen = std::upper_bound(begin, end, at.back()) - begin;
    const int64_t seen_by_all = std::upper_bound(begin, end, at.front()) - begin;
    for (int64_t first = 0, count = 0; first < seen; first += count) {
      count = first < seen_by_all ? std::min(tile_keys, seen_by_all - first)
                                  : std::min(straddling_keys, seen - first);
      const auto keys = page.positions.subspan(first, count);
      const int64_t first_query = std::lower_bound(at.begin(), at.end(), keys.front()) - at.begin();
      body(page, KeyTile{keys, first, count, first_query, first < seen_by_all});
    }
  }
}

/// Copies the rows of `tile` from `from` [queries, heads, dim] to `to`, times `factor`.
template <class T>
void pack(T* to, const Tensor& from, const QueryTile& tile, const Shape& shape, T factor) {
  const int64_t row = shape.group() * shape.dim;
  for (size_t i = 0; i < tile.positions.size(); ++i) {
    dispatch_stored<T>(from.type(), [&]<class S>(S) {
      const S* source = from.row<S>(tile.first + static_cast<int64_t>(i)) + tile.kv_head * row;
      for (int64_t j = 0; j < row; ++j) to[j] = factor * static_cast<T>(source[j]);
    });
    to += row;
  }
}

template <class T>
struct Matrix {
  const T* data;
  int64_t stride;
};

/// Keys or values [tokens, kv_heads, dim] of a tile for one head [count, dim]: where they are or,
/// of bfloat16, widened into `buffer`.
template <class T>
Matrix<T> of_head(const Tensor& from, const KeyTile& tile, int64_t kv_head, T* buffer) {
  const int64_t dim = from.extent(2), column = kv_head * dim;
  if (from.type() == dtype_of<T>) return {from.row<T>(tile.first) + column, from.row_stride()};
  for (int64_t i = 0; i < tile.count; ++i)
    convert_row(buffer + i * dim, from.row<bfloat16>(tile.first + i) + column, dim);
  return {buffer, dim};
}

/// Sums run in this many parts, so that they vectorise and do not depend on alignment.
constexpr int64_t lanes = 32;

/// Largest of x[0, n), at least `floor`; NaNs are passed over.
template <class T>
T largest(const T* x, int64_t n, T floor) {
  T part[lanes];
  std::fill_n(part, lanes, floor);
  const int64_t whole = n / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    for (int64_t l = 0; l < lanes; ++l) part[l] = x[i + l] > part[l] ? x[i + l] : part[l];
  for (int64_t i = whole; i < n; ++i) floor = x[i] > floor ? x[i] : floor;
  for (int64_t l = 0; l < lanes; ++l) floor = part[l] > floor ? part[l] : floor;
  return floor;
}

/// x <- exp(x - shift) on x[0, n); returns the sum.
template <class T>
T exp_and_sum(T* x, int64_t n, T shift) {
  T part[lanes] = {};
  const int64_t whole = n / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    for (int64_t l = 0; l < lanes; ++l) {
      const T e = math::exp(x[i + l] - shift);
      x[i + l] = e;
      part[l] += e;
    }
  T sum = 0;
  for (int64_t i = whole; i < n; ++i) {
    x[i] = math::exp(x[i] - shift);
    sum += x[i];
  }
  for (int64_t l = 0; l < lanes; ++l) sum += part[l];
  return sum;
}

/// (query, key) pairs that are visible, exactly.
double visible_pairs(std::span<const int64_t> positions, std::span<const KeyPage> pages);
/// Elements that widened keys and values of a tile take: none unless some page is of bfloat16.
int64_t widened_size(std::span<const KeyPage> pages, int64_t dim);
/// Checks what both directions share: extents and types of q, lse and pages.
Shape checked_shape(const Tensor& q, const Tensor& lse, std::span<const int64_t> positions,
                    std::span<const KeyPage> pages);

}  // namespace longstraw::attention_tiles
