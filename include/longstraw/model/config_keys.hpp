// Keys of a config.json that would change what is computed: one table of them, with the values that
// leave it as it is here.
#pragma once

#include "longstraw/model/config_section.hpp"

#include <cstdint>

namespace longstraw {

/// Refuses a key of `config` whose value asks for arithmetic that is not here. Keys that are not in
/// the table are not looked at.
void refuse_what_is_not_computed(const ConfigSection& config, int64_t head_dim);

/// The entry of `config` that says its weights are quantised, with its place and method; empty:
/// there is none.
std::string quantization_of(const ConfigSection& config);

}  // namespace longstraw
