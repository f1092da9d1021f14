#include "longstraw/comm/session.hpp"

#include "longstraw/comm/grid.hpp"

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <malloc.h>

#include <cstdlib>

namespace longstraw {
namespace {

// Scratch comes and goes with every layer: freed memory is kept for the next one, since taking it
// from the system again costs a page fault for each 4 KiB (8 % of a capture of 31 M parameters).
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc allows
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace

Session::Session(int& argc, char**& argv) {
  keep_freed_memory();
  // Other threads, such as the watchdog's, leave MPI to this one until they end the job.
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  Kokkos::initialize();
}

Session::~Session() {
  Kokkos::finalize();
  MPI_Finalize();
}

void Session::abort(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

}  // namespace longstraw
