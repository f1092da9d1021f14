#include "longstraw/kernels/embedding.hpp"

#include "loops.hpp"
#include "storage.hpp"

namespace longstraw {
namespace {

bool all_below(std::span<const int32_t> ids, int64_t vocab) {
  return std::all_of(ids.begin(), ids.end(), [=](int32_t id) { return 0 <= id && id < vocab; });
}

}  // namespace

void embed(Stream& stream, const Tensor& x, const Tensor& table, std::span<const int32_t> ids) {
  LONGSTRAW_ASSERT(x.order() == 2 && table.order() == 2 && x.type() == compute_type(table.type()));
  LONGSTRAW_ASSERT(x.extent(0) == std::ssize(ids) && x.extent(1) == table.extent(1));
  LONGSTRAW_ASSERT(all_below(ids, table.extent(0)));
  constexpr auto label = "longstraw::embed::forward";
  stream.count(label, 0);
  dispatch(x.type(), [&]<class T>(T) {
    dispatch_stored<T>(table.type(), [&]<class S>(S) {
      for_each(label, x.extent(0), [=](int64_t token) {
        convert_row(x.row<T>(token), table.row<S>(ids[token]), table.row_size());
      });
    });
  });
}

void embed_backward(Stream& stream, const Tensor& dtable, const Tensor& dx,
                    std::span<const int32_t> ids) {
  LONGSTRAW_ASSERT(dx.order() == 2 && dtable.order() == 2 && dx.type() == dtable.type());
  LONGSTRAW_ASSERT(dx.extent(0) == std::ssize(ids) && dx.extent(1) == dtable.extent(1));
  LONGSTRAW_ASSERT(all_below(ids, dtable.extent(0)));
  constexpr auto label = "longstraw::embed::backward";
  stream.count(label, static_cast<double>(dx.size()));
  dispatch(dx.type(), [&]<class T>(T) {
    // parallel over columns, since several tokens may share a row
    for_each_piece(label, dx.extent(1), 1024, [=](int64_t begin, int64_t end) {
      for (int64_t token = 0; token < dx.extent(0); ++token) {
        const T* from = dx.row<T>(token);
        T* to = dtable.row<T>(ids[token]);
#pragma omp simd
        for (int64_t c = begin; c < end; ++c) to[c] += from[c];
      }
    });
  });
}

}  // namespace longstraw
