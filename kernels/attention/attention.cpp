#include "longstraw/kernels/attention.hpp"

#include "attention/tiles.hpp"
#include "gemm/blas.hpp"
#include "longstraw/core/field.hpp"
#include "loops.hpp"

#include <cmath>

namespace longstraw {

namespace {

using namespace attention_tiles;

/// Workspace of one tile of queries.
template <class T>
struct Scratch {
  T *scores, *q, *out, *largest, *sum;
  T *keys, *values;  // those of a tile, widened

  Scratch(const Tensor& workspace, const Shape& shape) {
    scores = workspace.data<T>();
    q = scores + shape.rows() * tile_keys;
    out = q + shape.rows() * shape.dim;
    largest = out + shape.rows() * shape.dim;
    sum = largest + shape.rows();
    keys = sum + shape.rows();
    values = keys + tile_keys * shape.dim;
  }
};

/// Turns the scores of one row into exp(s - largest) and brings the row's sum and output, made with
/// an earlier largest, up to the new one.
template <class T>
void soften(T* scores, int64_t visible, int64_t count, T& largest_so_far, T& sum, T* out,
            int64_t dim) {
  std::fill(scores + visible, scores + count, T(0));
  if (visible == 0) return;
  const T top = largest(scores, visible, largest_so_far);
  if (top > largest_so_far) {
    const T shrink = std::exp(largest_so_far - top);  // 0 at first, when the former is -inf
    sum *= shrink;
    for (int64_t j = 0; j < dim; ++j) out[j] *= shrink;
    largest_so_far = top;
  }
  sum += exp_and_sum(scores, visible, top);
}

/// Adds the keys of one tile to the running softmax of the tile of queries.
template <class T>
void attend_tile(const Scratch<T>& scratch, const QueryTile& queries, const Shape& shape,
                 const KeyPage& page, const KeyTile& keys) {
  const int64_t dim = shape.dim, group = shape.group();
  const int64_t first = keys.first_query * group, rows = queries.rows(shape) - first;
  const auto k = of_head(page.keys, keys, queries.kv_head, scratch.keys);
  const auto v = of_head(page.values, keys, queries.kv_head, scratch.values);
  blas::gemm<T>(Transpose::no, Transpose::yes, rows, keys.count, dim, 1, scratch.q + first * dim,
                dim, k.data, k.stride, 0, scratch.scores, tile_keys);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = first + r;
    soften(scratch.scores + r * tile_keys, keys.visible(queries.positions[row / group]), keys.count,
           scratch.largest[row], scratch.sum[row], scratch.out + row * dim, dim);
    if (shape.rounds) round_row(scratch.scores + r * tile_keys, keys.count);
  }
  blas::gemm<T>(Transpose::no, Transpose::no, rows, dim, keys.count, 1, scratch.scores, tile_keys,
                v.data, v.stride, 1, scratch.out + first * dim, dim);
}

/// Normalises the tile and puts it in its place.
template <class T>
void unpack(const Tensor& out, const Tensor& lse, const Scratch<T>& scratch,
            const QueryTile& queries, const Shape& shape) {
  const int64_t group = shape.group(), dim = shape.dim;
  for (int64_t row = 0; row < queries.rows(shape); ++row) {
    const int64_t query = queries.first + row / group;
    const int64_t head = queries.kv_head * group + row % group;
    const T sum = scratch.sum[row];
    const T factor = sum == 0 ? T(0) : 1 / sum;
    T* target = out.row<T>(query) + head * dim;
    for (int64_t j = 0; j < dim; ++j) target[j] = scratch.out[row * dim + j] * factor;
    lse.data<T>()[query * shape.heads + head] = scratch.largest[row] + std::log(sum);
  }
}

void see_nothing(const Tensor& out, const Tensor& lse) {
  clear(out);
  dispatch(lse.type(), [&]<class T>(T) {
    std::fill_n(lse.data<T>(), lse.size(), -std::numeric_limits<T>::infinity());
  });
}

template <class T>
void attend(const Tensor& out, const Tensor& lse, const Tensor& q,
            std::span<const int64_t> positions, std::span<const KeyPage> pages, T scale,
            const Shape& shape, const Scratch<T>& scratch) {
  for_query_tiles(shape, positions, [&](const QueryTile& queries) {
    const int64_t rows = queries.rows(shape);
    pack(scratch.q, q, queries, shape, scale);
    std::fill_n(scratch.out, rows * shape.dim, T(0));
    std::fill_n(scratch.largest, rows, -std::numeric_limits<T>::infinity());
    std::fill_n(scratch.sum, rows, T(0));
    for_key_tiles(queries, pages, [&](const KeyPage& page, const KeyTile& keys) {
      attend_tile(scratch, queries, shape, page, keys);
    });
    unpack(out, lse, scratch, queries, shape);
  });
}

}  // namespace

int64_t attention_workspace(int64_t queries, int64_t heads, int64_t kv_heads, int64_t dim,
                            DType keys) {
  const Shape shape(queries, heads, kv_heads, dim);
  // Backward needs the most: two tiles of scores, and q, dout, dq of a tile of queries.
  return shape.rows() * (2 * tile_keys + 3 * dim + 2) +
         (keys == DType::bfloat16 ? 2 * tile_keys * dim : 0);
}

void attention(Stream& stream, const Tensor& out, const Tensor& lse, const Tensor& q,
               std::span<const int64_t> positions, std::span<const KeyPage> pages, double scale,
               const Tensor& workspace) {
  const Shape shape = checked_shape(q, lse, positions, pages);
  LONGSTRAW_ASSERT(out.size() == q.size() && out.type() == lse.type());
  stream.count("longstraw::attention::forward", 4.0 * static_cast<double>(shape.heads * shape.dim) *
                                                    visible_pairs(positions, pages));
  if (q.empty()) return;
  if (pages.empty()) return see_nothing(out, lse);
  LONGSTRAW_ASSERT(workspace.size() >=
                   shape.rows() * (tile_keys + 2 * shape.dim + 2) + widened_size(pages, shape.dim));
  for_each("longstraw::attention::forward", 1, [&](int64_t) {
    dispatch(lse.type(), [&]<class T>(T) {
      attend<T>(out, lse, q, positions, pages, static_cast<T>(scale), shape,
                Scratch<T>(workspace, shape));
    });
  });
}

}  // namespace longstraw
