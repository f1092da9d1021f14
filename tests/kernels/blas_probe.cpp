// Says what the BLAS is, checks it, or chooses its kernels, in a process of its own: the library
// reads its variables when it is loaded.
#include "longstraw/core/check.hpp"
#include "longstraw/kernels/blas_setup.hpp"

#include <cstdlib>
#include <iostream>
#include <string_view>

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "choose") longstraw::choose_blas_kernel(argc, argv);
  try {
    if (what == "check") longstraw::check_blas();
  } catch (const longstraw::Error& error) {
    std::cout << "refused: " << error.what() << "\n";
    return 1;
  }
  const auto facts = longstraw::blas_facts();
  const auto better = longstraw::better_blas_kernel();
  const char* again = std::getenv("LONGSTRAW_STARTED_AGAIN");
  std::cout << "config=" << facts.config << "\nkernel=" << facts.kernel
            << "\nthreads=" << facts.threads << "\nbetter=" << better.value_or("none")
            << "\nslow=" << facts.slow << "\nagain=" << (again == nullptr ? "no" : again)
            << "\nlast=" << argv[argc - 1] << "\n";
}
