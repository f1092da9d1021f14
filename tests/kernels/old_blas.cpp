// Preloaded before OpenBLAS: says that it fell back to its oldest kernels, as on a processor newer
// than the library. Follows OPENBLAS_CORETYPE unless STAND_IN_IS_DEAF is set.
#include <cstdlib>

extern "C" char* openblas_get_corename() {
  char* const oldest = const_cast<char*>("Prescott");
  char* const chosen = std::getenv("OPENBLAS_CORETYPE");
  return chosen == nullptr || std::getenv("STAND_IN_IS_DEAF") != nullptr ? oldest : chosen;
}
