#include "longstraw/kernels/convert.hpp"

#include "loops.hpp"
#include "storage.hpp"

namespace longstraw {
namespace {

template <class To, class From>
void convert_all(const char* label, const Tensor& to, const Tensor& from) {
  constexpr int64_t piece = 8192;
  if (to.contiguous() && from.contiguous()) {
    To* target = to.data<To>();
    const From* source = from.data<From>();
    for_each_piece(label, to.size(), piece, [=](int64_t begin, int64_t end) {
      convert_row(target + begin, source + begin, end - begin);
    });
  } else {
    LONGSTRAW_ASSERT(same_extents(to, from));
    for_each(label, to.extent(0), [=](int64_t row) {
      convert_row(to.row<To>(row), from.row<From>(row), to.row_size());
    });
  }
}

}  // namespace

void convert(Stream& stream, const Tensor& to, const Tensor& from) {
  LONGSTRAW_ASSERT(to.size() == from.size() && to.type() != from.type());
  LONGSTRAW_ASSERT(compute_type(to.type()) == DType::float32);
  LONGSTRAW_ASSERT(compute_type(from.type()) == DType::float32);
  constexpr auto label = "longstraw::convert::forward";
  stream.count(label, 0);
  if (to.empty()) return;
  if (to.type() == DType::float32) return convert_all<float, bfloat16>(label, to, from);
  convert_all<bfloat16, float>(label, to, from);
}

}  // namespace longstraw
