#include "longstraw/comm/signals.hpp"

#include "longstraw/core/check.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>

namespace longstraw {
namespace {

struct NamedSignal {
  int number;
  const char* name;
};
constexpr std::array<NamedSignal, 4> caught = {
    {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}}};
constexpr int64_t same_request_milliseconds = 500;

// State at file scope, since a handler is given the number of its signal and nothing else: the
// first signal's time, in milliseconds, times `numbers`, plus its number.
std::atomic<int64_t> first = 0;
constexpr int64_t numbers = 128;
static_assert(std::atomic<int64_t>::is_always_lock_free, "a handler must not wait");

int64_t milliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

extern "C" void note_signal(int signal) {
  const int64_t now = milliseconds();
  int64_t noted = 0;
  if (first.compare_exchange_strong(noted, now * numbers + signal)) return;
  if (now - noted / numbers < same_request_milliseconds) return;
  // Delivered when this handler returns.
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

Signals::Signals() {
  first = 0;
  for (const auto& one : caught) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    // Reads and writes that a signal falls into go on.
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    struct sigaction before {};
    require(::sigaction(one.number, &action, &before) == 0, "cannot catch {}", one.name);
    before_.push_back(before);
  }
}

Signals::~Signals() {
  for (size_t i = 0; i < before_.size(); ++i) ::sigaction(caught[i].number, &before_[i], nullptr);
}

int Signals::received() const { return static_cast<int>(first % numbers); }

std::string Signals::name(int signal) {
  for (const auto& one : caught)
    if (one.number == signal) return one.name;
  return str("signal {}", signal);
}

}  // namespace longstraw
