// The life of MPI and of the kernels' runtime in this process.
#pragma once

namespace longstraw {

/// Starts MPI and Kokkos, and ends them. One a process, in `main`, before anything that allocates.
class Session {
 public:
  Session(int& argc, char**& argv);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Ends the whole job at once with `status`: for an error that only some ranks know.
  [[noreturn]] static void abort(int status);
};

}  // namespace longstraw
