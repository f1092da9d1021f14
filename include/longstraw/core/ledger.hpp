// The account of every byte this program allocates for fields, pages, scratch and recorded
// activations: current and peak, in total and by label.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

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

}  // namespace longstraw
