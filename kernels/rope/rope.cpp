#include "longstraw/kernels/rope.hpp"

#include "loops.hpp"
#include "math.hpp"

namespace longstraw {
namespace {

/// Cosines and sines of one token's angles, a part of the frequencies at a time so that they fit on
/// the stack.
template <class T>
struct Rotations {
  static constexpr int64_t most = 128;
  T cosine[most];
  T sine[most];

  /// The angles are products in double, so their error is 2^-53 of the angle: 2.3e-10 at position
  /// 2,097,151, where float32 products (as in transformers) are 0.04 off.
  Rotations(int64_t position, std::span<const double> inv_freq, double scale, double sign) {
    const auto count = static_cast<int64_t>(inv_freq.size());
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const auto [s, c] = math::sincos(static_cast<double>(position) * inv_freq[j]);
      cosine[j] = static_cast<T>(scale * c);
      sine[j] = static_cast<T>(sign * scale * s);
    }
  }
};

}  // namespace

void rope(Stream& stream, const Tensor& x, std::span<const int64_t> positions,
          std::span<const double> inv_freq, double scale, Rotation rotation) {
  const int64_t tokens = x.extent(0), heads = x.extent(1), dim = x.extent(2);
  const auto pairs = static_cast<int64_t>(inv_freq.size());
  LONGSTRAW_ASSERT(x.order() == 3 && std::ssize(positions) == tokens && 2 * pairs <= dim);
  // where the reduction of angles stops being exact
  constexpr int64_t most = int64_t{1} << 24;
  for (const int64_t position : positions)
    require(position < most,
            "position {} is beyond {} (angles would lose digits) - use a shorter prompt", position,
            most);
  constexpr auto label = "longstraw::rope::rotate";
  stream.count(label, 6.0 * static_cast<double>(tokens * heads * pairs));
  const double sign = rotation == Rotation::forward ? 1 : -1;
  dispatch(x.type(), [&]<class T>(T) {
    for_each(label, tokens, [=](int64_t token) {
      T* const row = x.row<T>(token);
      for (int64_t first = 0; first < pairs; first += Rotations<T>::most) {
        const int64_t count = std::min(Rotations<T>::most, pairs - first);
        const Rotations<T> turn(positions[token], inv_freq.subspan(first, count), scale, sign);
        for (int64_t head = 0; head < heads; ++head) {
          T* low = row + head * dim + first;
          T* high = low + pairs;
#pragma omp simd
          for (int64_t j = 0; j < count; ++j) {
            const T a = low[j], b = high[j], c = turn.cosine[j], s = turn.sine[j];
            low[j] = a * c - b * s;
            high[j] = b * c + a * s;
          }
        }
      }
    });
  });
}

}  // namespace longstraw
