#include "longstraw/core/stream.hpp"

namespace longstraw {

void Stream::count(std::string_view label, double operations) {
  auto found = operations_.find(label);
  if (found == operations_.end()) found = operations_.emplace(std::string(label), 0.0).first;
  found->second += operations;
}

}  // namespace longstraw
