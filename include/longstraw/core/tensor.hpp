// A view of memory as an array of up to four dimensions, row-major, whose first dimension may have
// a stride. It owns nothing; `Field` does.
#pragma once

#include "longstraw/core/bfloat16.hpp"
#include "longstraw/core/check.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

namespace longstraw {

/// Types of elements. Kernels compute in float32 and float64; bfloat16 is for storing, and is
/// computed with in float32.
enum class DType { float32, float64, bfloat16 };

constexpr int64_t size_of(DType type) {
  return type == DType::float32 ? 4 : type == DType::float64 ? 8 : 2;
}
const char* name_of(DType type);

/// The type that elements of `type` are computed with in.
constexpr DType compute_type(DType type) { return type == DType::bfloat16 ? DType::float32 : type; }

template <class T>
concept Element =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, bfloat16>;

template <Element T>
constexpr DType dtype_of = std::is_same_v<T, float>    ? DType::float32
                           : std::is_same_v<T, double> ? DType::float64
                                                       : DType::bfloat16;

/// Calls `body(T{})` with the C++ type of `type`, which one can compute in:
/// `dispatch(x.type(), [&]<class T>(T) { ... })`.
template <class Body>
decltype(auto) dispatch(DType type, Body&& body) {
  LONGSTRAW_ASSERT(type == compute_type(type));
  return type == DType::float32 ? body(float{}) : body(double{});
}

/// Whether elements of `stored` may stand where T is computed with: T itself, or bfloat16 for
/// float32.
template <class T>
constexpr bool stores(DType stored) {
  return stored == dtype_of<T> || (stored == DType::bfloat16 && std::is_same_v<T, float>);
}

/// Calls `body(S{})` with the C++ type of `stored` in a computation in T.
template <class T, class Body>
decltype(auto) dispatch_stored(DType stored, Body&& body) {
  LONGSTRAW_ASSERT(stores<T>(stored));
  if constexpr (std::is_same_v<T, float>)
    if (stored == DType::bfloat16) return body(bfloat16{});
  return body(T{});
}

/// Elements of an array of these extents: their product. Of one value, which has none, 1.
constexpr int64_t elements_of(std::span<const int64_t> extents) {
  int64_t elements = 1;
  for (const int64_t extent : extents) elements *= extent;
  return elements;
}

/// Elements of one index of the first dimension of such an array.
constexpr int64_t row_elements_of(std::span<const int64_t> extents) {
  return extents.empty() ? 1 : elements_of(extents.subspan(1));
}

class Tensor {
 public:
  static constexpr int max_order = 4;

  Tensor() = default;
  /// Contiguous view of `data`.
  Tensor(void* data, DType type, std::initializer_list<int64_t> extents);

  DType type() const { return type_; }
  int order() const { return order_; }
  int64_t extent(int dimension) const {
    LONGSTRAW_ASSERT(dimension >= 0 && dimension < order_);
    return extents_[dimension];
  }
  /// Elements of one index of the first dimension.
  int64_t row_size() const;
  /// Elements from one index of the first dimension to the next; at least `row_size()`.
  int64_t row_stride() const { return stride_; }
  int64_t size() const { return order_ == 0 ? 0 : extents_[0] * row_size(); }
  int64_t bytes() const { return size() * size_of(type_); }
  bool contiguous() const { return order_ == 0 || extents_[0] <= 1 || stride_ == row_size(); }
  bool empty() const { return size() == 0; }

  template <class T>
  T* data() const {
    LONGSTRAW_ASSERT(dtype_of<T> == type_);
    return static_cast<T*>(data_);
  }
  template <class T>
  T* row(int64_t index) const {
    return data<T>() + index * stride_;
  }
  std::byte* raw() const { return static_cast<std::byte*>(data_); }

  /// Indices [begin, end) of the first dimension.
  Tensor rows(int64_t begin, int64_t end) const;
  /// Columns [begin, end) of a tensor of order 2, which keeps its stride.
  Tensor columns(int64_t begin, int64_t end) const;
  /// The same elements under other extents. A strided tensor can only split or join dimensions
  /// after the first, or split the first row of each index (`[n, a*b] -> [n*a, b]` needs
  /// contiguity).
  Tensor reshape(std::initializer_list<int64_t> extents) const;

 private:
  void* data_ = nullptr;
  DType type_ = DType::float32;
  int order_ = 0;
  std::array<int64_t, max_order> extents_{};
  int64_t stride_ = 0;
};

}  // namespace longstraw
