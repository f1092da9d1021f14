#include "longstraw/core/ledger.hpp"

#include "longstraw/core/check.hpp"

#include <algorithm>

namespace longstraw {

void Ledger::add(std::string_view label, int64_t bytes) {
  auto found = entries_.find(label);
  if (found == entries_.end()) found = entries_.emplace(std::string(label), Entry{}).first;
  for (Entry* entry : {&found->second, &total_}) {
    entry->current += bytes;
    entry->peak = std::max(entry->peak, entry->current);
  }
}

void Ledger::remove(std::string_view label, int64_t bytes) {
  auto found = entries_.find(label);
  LONGSTRAW_ASSERT(found != entries_.end() && found->second.current >= bytes);
  found->second.current -= bytes;
  total_.current -= bytes;
}

void Ledger::raise_peaks(const std::map<std::string, int64_t>& peaks) {
  for (const auto& [label, peak] : peaks) {
    Entry& entry = label == "total" ? total_ : entries_[label];
    entry.peak = std::max(entry.peak, peak);
  }
}

void Ledger::reset_peaks() {
  total_.peak = total_.current;
  for (auto& [label, entry] : entries_) entry.peak = entry.current;
}

}  // namespace longstraw
