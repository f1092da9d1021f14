#include "longstraw/kernels/rope.hpp"

#include "kernels/support.hpp"
#include "reference/rope.hpp"

#include <numeric>

namespace longstraw::test {
namespace {

struct Shape {
  int64_t tokens;
  int64_t heads;
  int64_t dim;
  int64_t pairs;
  int64_t padding;
};

std::vector<double> frequencies(int64_t pairs) {
  std::vector<double> result;
  for (int64_t j = 0; j < pairs; ++j)
    result.push_back(std::pow(1e7, -static_cast<double>(j) / static_cast<double>(pairs)));
  return result;
}

Array rotate(DType type, const Shape& s, const Array& x, const std::vector<int64_t>& positions,
             double scale, Rotation rotation) {
  Stream stream;
  Held held(type, {s.tokens, s.heads, s.dim}, x, s.padding);
  rope(stream, held, positions, frequencies(s.pairs), scale, rotation);
  return held.values();
}

std::vector<int64_t> positions_from(int64_t first, int64_t tokens) {
  std::vector<int64_t> positions(tokens);
  std::iota(positions.begin(), positions.end(), first);
  return positions;
}

TEST(Rope, ValuesAgainstLongDouble) {
  for (const int64_t tokens : sizes_and_none)
    for (const int64_t pairs : {1, 3, 32, 130})
      for (const int64_t first : {int64_t{0}, int64_t{1000}, 2097152 - tokens}) {
        const Shape s{tokens, 3, 2 * pairs + 7, pairs, tokens % 2 == 0 ? 5 : 0};
        const Array x = random_array(s.tokens * s.heads * s.dim, 1);
        const auto positions = positions_from(first, tokens);
        for (const Rotation rotation : {Rotation::forward, Rotation::inverse}) {
          const Array should = reference::rope(x, positions, frequencies(pairs), s.heads, s.dim,
                                               1.2079, rotation == Rotation::forward ? 1 : -1);
          for (const DType type : {DType::float32, DType::float64}) {
            // the angle's own rounding in double, 2^-53 of it, and a few roundings of the result
            const double tolerance =
                static_cast<double>(first + tokens) * 0x1p-53 + 4 * epsilon(type);
            const Array is = rotate(type, s, x, positions, 1.2079, rotation);
            expect_close(is, should, tolerance, "rope");
            EXPECT_EQ(is, rotate(type, s, x, positions, 1.2079, rotation));
          }
        }
      }
}

TEST(Rope, InverseIsTheTranspose) {
  // <R x, y> = <x, R^T y>: what backward needs, at any scale
  const Shape s{65, 3, 20, 8, 0};
  const Array x = random_array(65 * 60, 1), y = random_array(65 * 60, 2);
  const auto positions = positions_from(500000, 65);
  const Array rx = rotate(DType::float64, s, x, positions, 1.5, Rotation::forward);
  const Array ry = rotate(DType::float64, s, y, positions, 1.5, Rotation::inverse);
  double one = 0, other = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    one += rx[i] * y[i];
    other += x[i] * ry[i];
    size += std::abs(x[i] * ry[i]);
  }
  EXPECT_NEAR(one, other, 64 * 0x1p-52 * size);  // rounding of two sums
}

TEST(Rope, RefusesPositionsWhoseAnglesLoseDigits) {
  EXPECT_THROW(rotate(DType::float32, {1, 1, 2, 1, 0}, {1.0, 2.0}, {int64_t{1} << 24}, 1.0,
                      Rotation::forward),
               Error);
}

TEST(Rope, DimensionsBeyondTheRotatedStay) {
  const Shape s{3, 2, 16, 4, 0};
  const Array x = random_array(96, 1);
  const Array y = rotate(DType::float32, s, x, positions_from(7, 3), 1.0, Rotation::forward);
  for (int row = 0; row < 6; ++row)
    for (int c = 8; c < 16; ++c) EXPECT_EQ(y[row * 16 + c], x[row * 16 + c]);
}

}  // namespace
}  // namespace longstraw::test
