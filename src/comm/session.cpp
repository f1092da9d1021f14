#include "longstraw/comm/session.hpp"

#include "longstraw/comm/grid.hpp"

#include <mpi.h>
#include <Kokkos_Core.hpp>

#include <cstdlib>

namespace longstraw {

Session::Session(int& argc, char**& argv) {
  check_mpi(MPI_Init(&argc, &argv), "MPI_Init");
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
