#include "longstraw/core/field.hpp"

#include <Kokkos_Core.hpp>

#include <cstring>
#include <utility>

namespace longstraw {

using Space = Kokkos::DefaultHostExecutionSpace::memory_space;

Field::Field(Ledger& ledger, std::string_view label, DType type,
             std::initializer_list<int64_t> extents)
    : ledger_(&ledger), label_(label), tensor_(nullptr, type, extents) {
  const int64_t bytes = tensor_.bytes();
  void* data = bytes > 0 ? Kokkos::kokkos_malloc<Space>(std::string(label), bytes) : nullptr;
  tensor_ = Tensor(data, type, extents);
  ledger.add(label, bytes);
}

Field::Field(Field&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      label_(other.label_),
      tensor_(std::exchange(other.tensor_, {})) {}

Field& Field::operator=(Field&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(label_, other.label_);
  std::swap(tensor_, other.tensor_);
  if (this != &other) Field released(std::move(other));
  return *this;
}

Field::~Field() {
  if (ledger_ == nullptr) return;
  ledger_->remove(label_, tensor_.bytes());
  if (tensor_.raw() != nullptr) Kokkos::kokkos_free<Space>(tensor_.raw());
}

Field Field::zeros(Ledger& ledger, std::string_view label, DType type,
                   std::initializer_list<int64_t> extents) {
  Field field(ledger, label, type, extents);
  clear(field);
  return field;
}

void clear(const Tensor& tensor) {
  if (tensor.empty()) return;
  if (tensor.contiguous()) {
    std::memset(tensor.raw(), 0, tensor.bytes());
    return;
  }
  for (int64_t i = 0; i < tensor.extent(0); ++i) clear(tensor.rows(i, i + 1));
}

void copy(const Tensor& to, const Tensor& from) {
  LONGSTRAW_ASSERT(to.type() == from.type() && to.size() == from.size());
  if (from.empty()) return;
  if (to.contiguous() && from.contiguous()) {
    std::memcpy(to.raw(), from.raw(), from.bytes());
    return;
  }
  LONGSTRAW_ASSERT(to.extent(0) == from.extent(0));
  for (int64_t i = 0; i < from.extent(0); ++i) copy(to.rows(i, i + 1), from.rows(i, i + 1));
}

}  // namespace longstraw
