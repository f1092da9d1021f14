#include "longstraw/core/tensor.hpp"

namespace longstraw {

const char* name_of(DType type) {
  return type == DType::float32 ? "float32" : type == DType::float64 ? "float64" : "bfloat16";
}

Tensor::Tensor(void* data, DType type, std::initializer_list<int64_t> extents)
    : data_(data), type_(type), order_(static_cast<int>(extents.size())) {
  LONGSTRAW_ASSERT(extents.size() >= 1 && extents.size() <= max_order);
  std::copy(extents.begin(), extents.end(), extents_.begin());
  stride_ = row_size();
}

int64_t Tensor::row_size() const { return row_elements_of(std::span(extents_).first(order_)); }

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  LONGSTRAW_ASSERT(order_ >= 1 && 0 <= begin && begin <= end && end <= extents_[0]);
  Tensor part = *this;
  part.data_ = raw() + begin * stride_ * size_of(type_);
  part.extents_[0] = end - begin;
  return part;
}

Tensor Tensor::columns(int64_t begin, int64_t end) const {
  LONGSTRAW_ASSERT(order_ == 2 && 0 <= begin && begin <= end && end <= extents_[1]);
  Tensor part = *this;
  part.data_ = raw() + begin * size_of(type_);
  part.extents_[1] = end - begin;
  return part;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> extents) const {
  Tensor other(data_, type_, extents);
  LONGSTRAW_ASSERT(other.size() == size());
  if (!contiguous()) {
    LONGSTRAW_ASSERT(other.extents_[0] == extents_[0]);
    other.stride_ = stride_;
  }
  return other;
}

}  // namespace longstraw
