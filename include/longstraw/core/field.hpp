// Memory that is owned, labelled and accounted for: a tensor of its own exact size.
#pragma once

#include "longstraw/core/ledger.hpp"
#include "longstraw/core/tensor.hpp"

#include <string_view>

namespace longstraw {

/// Owner of one allocation. Contents are undefined until written. Move-only; the ledger must
/// outlive it. An empty field (default, or moved from) holds nothing.
class Field {
 public:
  Field() = default;
  /// `label` must outlive the field: use a literal.
  Field(Ledger& ledger, std::string_view label, DType type, std::initializer_list<int64_t> extents);
  Field(Field&& other) noexcept;
  Field& operator=(Field&& other) noexcept;
  ~Field();

  /// A field whose elements are zero.
  static Field zeros(Ledger& ledger, std::string_view label, DType type,
                     std::initializer_list<int64_t> extents);

  const Tensor& tensor() const { return tensor_; }
  operator const Tensor&() const { return tensor_; }
  bool allocated() const { return ledger_ != nullptr; }
  std::string_view label() const { return label_; }

 private:
  Ledger* ledger_ = nullptr;
  std::string_view label_;
  Tensor tensor_;
};

/// Sets every element of `tensor` to zero.
void clear(const Tensor& tensor);
/// Copies `from` to `to`; same type and number of elements, strides may differ.
void copy(const Tensor& to, const Tensor& from);

}  // namespace longstraw
