#include "gemm/cpu.hpp"

namespace longstraw {

// other processors are left to the BLAS's own choice
VectorSet vectors_of_this_cpu() { return VectorSet::basic; }

}  // namespace longstraw
