// The account of every byte this program allocates for fields, pages, scratch and recorded
// activations: current and peak, in total and by label.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

namespace longstraw {

class Ledger {
 public:
  struct Entry {
    int64_t current = 0;
    int64_t peak = 0;
  };

  void add(std::string_view label, int64_t bytes);
  void remove(std::string_view label, int64_t bytes);

  /// Sum over labels.
  const Entry& total() const { return total_; }
  /// By label; a label's own peak may lie at another moment than the total's.
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  /// Starts the peaks anew from what is held now.
  void reset_peaks();
  /// Peaks that were reached earlier, by label; "total" is that of the sum.
  void raise_peaks(const std::map<std::string, int64_t>& peaks);

 private:
  Entry total_;
  std::map<std::string, Entry, std::less<>> entries_;
};

/// Puts what a standard container allocates into a ledger, under one label.
template <class T>
class LedgerAllocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  LedgerAllocator(Ledger& ledger, std::string_view label) : ledger_(&ledger), label_(label) {}

  T* allocate(size_t count) {
    T* data = std::allocator<T>().allocate(count);
    ledger_->add(label_, static_cast<int64_t>(count * sizeof(T)));
    return data;
  }
  void deallocate(T* data, size_t count) {
    ledger_->remove(label_, static_cast<int64_t>(count * sizeof(T)));
    std::allocator<T>().deallocate(data, count);
  }
  bool operator==(const LedgerAllocator&) const = default;

 private:
  Ledger* ledger_;
  std::string_view label_;
};

}  // namespace longstraw
