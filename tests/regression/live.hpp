// The built program while it runs: started under mpirun, watched, sent signals, and waited for.
#pragma once

#include "regression/program.hpp"

#include <sys/types.h>

#include <functional>
#include <string>

namespace longstraw::program {

class Live {
 public:
  /// `mpirun -n RANKS longstraw ARGUMENTS` in `place`, with the shipped environment and `variables`
  /// (NAME=VALUE ...). What is still running at the end of this object's life is killed.
  Live(const Workplace& place, int ranks, const std::string& arguments,
       const std::string& variables = "");
  ~Live();
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  /// Waits until `condition` holds; false: the program ended, or it took too long.
  bool wait_until(const std::function<bool()>& condition) const;
  /// Waits until standard output contains `text`.
  bool wait_for(const std::string& text) const;
  /// Waits until rank `rank` catches the signals that ask it to stop, which is before it loads.
  bool wait_for_signals(int rank) const;

  void send(int rank, int signal) const;
  void send_launcher(int signal) const;
  /// Of a rank; 0: it is not there (yet).
  pid_t process(int rank) const;

  /// Waits for the end; `seconds` counts from this call.
  Outcome finish();

 private:
  bool over() const;

  std::string out_, err_;
  pid_t launcher_ = 0;
  mutable int status_ = -1;
  mutable bool over_ = false;
};

}  // namespace longstraw::program
