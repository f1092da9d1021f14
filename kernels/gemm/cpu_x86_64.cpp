#include "gemm/cpu.hpp"

namespace longstraw {

VectorSet vectors_of_this_cpu() {
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (avx512) return VectorSet::avx512;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return avx2 ? VectorSet::avx2 : VectorSet::basic;
}

}  // namespace longstraw
