// Arrays for the tests of kernels: values in double, seen by the kernel in its own type.
#pragma once

#include "longstraw/core/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace longstraw::test {

using Values = std::vector<double>;

/// `count` values, uniform in [low, high), that float holds exactly.
inline Values uniform(std::mt19937_64& random, int64_t count, double low = -1, double high = 1) {
  Values values(count);
  std::uniform_real_distribution<double> distribution(low, high);
  for (double& value : values) value = static_cast<float>(distribution(random));
  return values;
}

/// What bfloat16 keeps of the values.
inline Values rounded(Values values) {
  for (double& value : values) value = bfloat16(value);
  return values;
}

/// Memory of one tensor in type T.
template <class T>
class Array {
 public:
  /// Filled with NaN, so that an element that is not written shows.
  explicit Array(std::initializer_list<int64_t> extents) : extents_(extents) {
    int64_t size = 1;
    for (const int64_t extent : extents) size *= extent;
    data_.assign(size, static_cast<T>(std::nan("")));
  }
  Array(std::initializer_list<int64_t> extents, const Values& values) : Array(extents) {
    LONGSTRAW_ASSERT(values.size() == data_.size());
    std::transform(values.begin(), values.end(), data_.begin(),
                   [](double value) { return static_cast<T>(value); });
  }
  Tensor tensor() {
    const Tensor flat(data_.data(), dtype_of<T>, {static_cast<int64_t>(data_.size())});
    const auto& e = extents_;
    switch (e.size()) {
      case 1: return flat;
      case 2: return flat.reshape({e[0], e[1]});
      case 3: return flat.reshape({e[0], e[1], e[2]});
      default: return flat.reshape({e[0], e[1], e[2], e[3]});
    }
  }
  operator Tensor() { return tensor(); }
  Values values() const { return Values(data_.begin(), data_.end()); }
  std::vector<T>& data() { return data_; }

 private:
  std::vector<T> data_;
  std::vector<int64_t> extents_;
};

/// Largest difference over the largest value (at least `size`, for results whose terms cancel);
/// infinite where one side alone is not finite.
inline double relative_error(const Values& got, const Values& expected, double size = 1e-300) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, largest = size;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;  // also infinities
    const double d = std::abs(got[i] - expected[i]);
    if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, d);
  }
  for (const double value : expected)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  return difference / largest;
}

}  // namespace longstraw::test
