// The rotary embedding as a config.json describes it, in any of the places and spellings in use.
#pragma once

#include "longstraw/model/config.hpp"
#include "longstraw/model/config_section.hpp"

namespace longstraw {

/// Reads rope_parameters, which may have an entry for each kind of layer, the older rope_scaling,
/// and what stands beside them. `outer` is the wrapper around `config`, or `config` itself. Places
/// that say different things are refused.
Rope parse_rope(const ConfigSection& config, const ConfigSection& outer, int64_t head_dim);

}  // namespace longstraw
