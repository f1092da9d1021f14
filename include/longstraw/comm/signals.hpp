// Signals that ask a run to stop: SIGTERM, SIGINT, SIGUSR1, SIGUSR2.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace longstraw {

/// Catches the four signals for as long as it lives; one a process. The first is only noted, for
/// the loop to stop at its next tick; a second one of any kind ends the process at once, by that
/// signal, and with it the job. Within half a second of the first it counts as the same request,
/// since launchers may deliver one twice.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// Number of the first signal caught; 0: none yet.
  int received() const;
  /// "SIGTERM".
  static std::string name(int signal);

 private:
  std::vector<struct sigaction> before_;
};

}  // namespace longstraw
