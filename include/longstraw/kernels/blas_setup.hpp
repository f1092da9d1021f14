// The choice and the check of the BLAS kernels. OpenBLAS picks its kernels by a list of processors
// that ends where the library was released; on a newer processor it may fall back to its oldest
// ones, several times slower, and old kernels have been wrong on new processors.
#pragma once

#include <optional>
#include <string>

namespace longstraw {

/// What OPENBLAS_CORETYPE should be when the running OpenBLAS uses kernels below what this
/// processor offers. Nothing when they are good, or when the BLAS is another one or has one set
/// only.
std::optional<std::string> better_blas_kernel();

/// To be called first in `main`, before MPI_Init. Where better_blas_kernel() names one and the user
/// has not set OPENBLAS_CORETYPE, sets it and starts this program again, once: the library reads
/// the variable when it is loaded. So are OPENBLAS_NUM_THREADS and OMP_NUM_THREADS set to 1 where
/// they are unset, since a rank is one thread. Returns when nothing is to be changed.
void choose_blas_kernel(int argc, char** argv);

struct BlasFacts {
  std::string config;  ///< the library's own description
  std::string kernel;  ///< name of the kernel set in use
  int threads = 1;
  std::string slow;  ///< why it is slow on this processor, and the cure; empty when it is not
};
BlasFacts blas_facts();

/// Small products in float and double, plain and transposed, of odd sizes, against plain loops.
/// Throws when an element is off beyond rounding. Takes a few milliseconds.
void check_blas();

}  // namespace longstraw
