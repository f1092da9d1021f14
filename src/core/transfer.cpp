#include "longstraw/core/transfer.hpp"

#include "longstraw/core/log.hpp"

#include <utility>

namespace longstraw {

Transfer::Transfer(std::string what, int64_t bytes, bool speaks)
    : what_(std::move(what)), bytes_(bytes), speaks_(speaks), terminal_(speaks && on_terminal()) {}

Transfer::~Transfer() {
  if (shown_) log_transient("");
}

void Transfer::done(int64_t bytes) {
  done_ += bytes;
  const double now = timer_.seconds();
  if (!speaks_ || now < next_) return;
  constexpr double mebi = 1 << 20;
  next_ = now + (terminal_ ? 0.5 : 10.0);
  const auto done = static_cast<double>(done_), all = static_cast<double>(bytes_);
  const std::string line = str("{}  {:.0f} % of {:.0f} MiB  {:.0f} MiB/s", what_,
                               all > 0 ? 100 * done / all : 100, all / mebi, done / mebi / now);
  if (terminal_)
    log_transient(line);
  else
    log(Level::info, line);
  shown_ = terminal_;
}

}  // namespace longstraw
