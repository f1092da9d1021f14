// A line that tells people how far the reading or writing of many bytes has come.
#pragma once

#include "longstraw/core/timer.hpp"

#include <cstdint>
#include <string>

namespace longstraw {

/// Speaks of what takes longer than two seconds: on a terminal in one line that is overwritten,
/// elsewhere in a line every ten seconds. Of a rank; for the one that speaks.
class Transfer {
 public:
  /// `what` is done with `bytes` bytes. Says nothing unless it `speaks`.
  Transfer(std::string what, int64_t bytes, bool speaks);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void done(int64_t bytes);

 private:
  std::string what_;
  int64_t bytes_;
  bool speaks_, terminal_, shown_ = false;
  int64_t done_ = 0;
  double next_ = 2;  // seconds
  Timer timer_;
};

}  // namespace longstraw
