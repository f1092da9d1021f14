// Seconds by name of a phase.
#pragma once

#include <chrono>

namespace longstraw {

/// Seconds since it was made.
class Timer {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace longstraw
