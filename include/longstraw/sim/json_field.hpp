// A field of a dump that is a text of JSON, of which nothing is taken on trust.
#pragma once

#include "longstraw/core/dump_fields.hpp"

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace longstraw {

/// Lists `value` as a text. What a dump has in its place is given to `take`; it is refused as
/// damaged, the same on every rank, where it is no JSON, where `take` refuses it or asks it for
/// members or types that it has not.
void json_field(DumpFields& fields, const std::string& path, const nlohmann::json& value,
                std::string_view meaning, const std::function<void(const nlohmann::json&)>& take);

}  // namespace longstraw
