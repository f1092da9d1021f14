#include "attention/tiles.hpp"
#include "gemm/blas.hpp"
#include "longstraw/core/field.hpp"
#include "loops.hpp"

namespace longstraw {

namespace {

using namespace attention_tiles;

/// Workspace of one tile of queries.
template <class T>
struct Scratch {
  T *p, *ds, *q, *dout, *dq;
  T *keys, *values;  // those of a tile, widened

  Scratch(const Tensor& workspace, const Shape& shape) {
    p = workspace.data<T>();
    ds = p + shape.rows() * tile_keys;
    q = ds + shape.rows() * tile_keys;
    dout = q + shape.rows() * shape.dim;
    dq = dout + shape.rows() * shape.dim;
    keys = dq + shape.rows() * shape.dim;
    values = keys + tile_keys * shape.dim;
  }
};

/// One row: p = exp(s - lse) and ds = p (dp - delta), zero for keys that are not visible.
template <class T>
void soften(T* p, T* ds, int64_t visible, int64_t count, T lse, T delta) {
  for (int64_t j = 0; j < visible; ++j) p[j] = math::exp(p[j] - lse);
  for (int64_t j = 0; j < visible; ++j) ds[j] = p[j] * (ds[j] - delta);
  std::fill(p + visible, p + count, T(0));
  std::fill(ds + visible, ds + count, T(0));
}

template <class T>
struct Gradient {
  const Shape& shape;
  const Tensor& lse;
  const Tensor& delta;
  Scratch<T> scratch;

  /// p and ds of the rows from `first` on.
  void scores(const QueryTile& queries, const KeyTile& keys, const Matrix<T>& k, const Matrix<T>& v,
              int64_t first) const {
    const int64_t dim = shape.dim, group = shape.group(), rows = queries.rows(shape) - first;
    blas::gemm<T>(Transpose::no, Transpose::yes, rows, keys.count, dim, 1, scratch.q + first * dim,
                  dim, k.data, k.stride, 0, scratch.p, tile_keys);
    blas::gemm<T>(Transpose::no, Transpose::yes, rows, keys.count, dim, 1,
                  scratch.dout + first * dim, dim, v.data, v.stride, 0, scratch.ds, tile_keys);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t query = (first + r) / group;
      const int64_t at =
          (queries.first + query) * shape.heads + queries.kv_head * group + (first + r) % group;
      soften(scratch.p + r * tile_keys, scratch.ds + r * tile_keys,
             keys.visible(queries.positions[query]), keys.count, lse.data<T>()[at],
             delta.data<T>()[at]);
      if (!shape.rounds) continue;
      round_row(scratch.p + r * tile_keys, keys.count);
      round_row(scratch.ds + r * tile_keys, keys.count);
    }
  }

  void tile(const QueryTile& queries, const KeyPage& page, const KeyTile& keys) const {
    const int64_t dim = shape.dim;
    const int64_t first = keys.first_query * shape.group(), rows = queries.rows(shape) - first;
    const auto k = of_head(page.keys, keys, queries.kv_head, scratch.keys);
    const auto v = of_head(page.values, keys, queries.kv_head, scratch.values);
    scores(queries, keys, k, v, first);
    blas::gemm<T>(Transpose::no, Transpose::no, rows, dim, keys.count, 1, scratch.ds, tile_keys,
                  k.data, k.stride, 1, scratch.dq + first * dim, dim);
    // scratch.q holds scale q, which is what dk = scale ds^T q needs.
    add_product(page.dkeys, queries, keys, scratch.ds, scratch.q + first * dim, rows);
    add_product(page.dvalues, queries, keys, scratch.p, scratch.dout + first * dim, rows);
  }

  /// target [keys, kv head] += left^T right, unless no gradient is wanted there.
  void add_product(const Tensor& target, const QueryTile& queries, const KeyTile& keys,
                   const T* left, const T* right, int64_t rows) const {
    if (target.empty()) return;
    T* to = target.row<T>(keys.first) + queries.kv_head * shape.dim;
    blas::gemm<T>(Transpose::yes, Transpose::no, keys.count, shape.dim, rows, 1, left, tile_keys,
                  right, shape.dim, 1, to, target.row_stride());
  }
};

template <class T>
void unpack(const Tensor& dq, const T* from, const QueryTile& queries, const Shape& shape,
            T scale) {
  const int64_t row = shape.group() * shape.dim;
  for (size_t i = 0; i < queries.positions.size(); ++i) {
    T* target = dq.row<T>(queries.first + static_cast<int64_t>(i)) + queries.kv_head * row;
    for (int64_t j = 0; j < row; ++j) target[j] = scale * from[j];
    from += row;
  }
}

/// Six operations a pair and element for S, dP and dQ, two each for dK and dV where wanted.
double backward_operations(const Shape& shape, std::span<const int64_t> positions,
                           std::span<const KeyPage> pages) {
  double total = 0;
  for (const KeyPage& page : pages) {
    const int products = 3 + (page.dkeys.empty() ? 0 : 1) + (page.dvalues.empty() ? 0 : 1);
    total += 2.0 * products * visible_pairs(positions, {&page, 1});
  }
  return total * static_cast<double>(shape.heads * shape.dim);
}

}  // namespace

void attention_backward(Stream& stream, const Tensor& dq, const Tensor& dout, const Tensor& q,
                        const Tensor& lse, const Tensor& delta, std::span<const int64_t> positions,
                        std::span<const KeyPage> pages, double scale, const Tensor& workspace) {
  const Shape shape = checked_shape(q, lse, positions, pages);
  LONGSTRAW_ASSERT(dq.size() == q.size() && dout.size() == q.size());
  LONGSTRAW_ASSERT(dq.type() == lse.type() && compute_type(dout.type()) == lse.type());
  LONGSTRAW_ASSERT(delta.contiguous() && delta.size() == lse.size());
  stream.count("longstraw::attention::backward", backward_operations(shape, positions, pages));
  if (q.empty()) return;
  if (pages.empty()) return clear(dq);
  LONGSTRAW_ASSERT(workspace.size() >=
                   shape.rows() * (2 * tile_keys + 3 * shape.dim) + widened_size(pages, shape.dim));
  for_each("longstraw::attention::backward", 1, [&](int64_t) {
    dispatch(lse.type(), [&]<class T>(T) {
      const Gradient<T> gradient{shape, lse, delta, Scratch<T>(workspace, shape)};
      const Scratch<T>& scratch = gradient.scratch;
      for_query_tiles(shape, positions, [&](const QueryTile& queries) {
        pack(scratch.q, q, queries, shape, static_cast<T>(scale));
        pack(scratch.dout, dout, queries, shape, T(1));
        std::fill_n(scratch.dq, queries.rows(shape) * shape.dim, T(0));
        for_key_tiles(queries, pages, [&](const KeyPage& page, const KeyTile& keys) {
          gradient.tile(queries, page, keys);
        });
        unpack(dq, scratch.dq, queries, shape, static_cast<T>(scale));
      });
    });
  });
}

}  // namespace longstraw
