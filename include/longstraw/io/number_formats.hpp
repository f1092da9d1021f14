// Half-precision numbers as files hold them, to and from the types we compute in.
#pragma once

#include <cstdint>

namespace longstraw {

/// Exact.
float from_bf16(uint16_t bits);
float from_f16(uint16_t bits);

/// Rounded once, to nearest even; beyond the largest finite number: infinite; a NaN stays one.
uint16_t to_bf16(float value);
uint16_t to_bf16(double value);
uint16_t to_f16(float value);
uint16_t to_f16(double value);

}  // namespace longstraw
