// What the processor offers to matrix kernels. Internal to the kernels.
#pragma once

namespace longstraw {

/// In rising order, so that sets can be compared.
enum class VectorSet { basic, avx2, avx512 };

VectorSet vectors_of_this_cpu();

}  // namespace longstraw
