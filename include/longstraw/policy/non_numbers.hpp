// Numbers that JSON has no word for, which some writers put there all the same: NaN, Infinity and
// -Infinity, and numbers beyond every type (1e999).
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace longstraw {

/// What a quoted non-number starts with that is to be written as it was.
constexpr std::string_view non_number_mark = "\\u0001";

/// JSON as some writers have it.
struct MarkedJson {
  nlohmann::ordered_json value;
  bool marked = false;  ///< whether it has non-numbers, which are texts that start with the mark
};

/// As `parse_json`, but that non-numbers are allowed.
MarkedJson parse_marked_json(const std::string& text, std::string_view where,
                             std::string_view cure = "");

/// `text` with non-numbers as JSON strings that start with `mark`.
std::string with_quoted_non_numbers(const std::string& text, std::string_view mark = "");

/// Undoes `with_quoted_non_numbers(..., non_number_mark)` in JSON written since.
std::string with_bare_non_numbers(const std::string& text);

}  // namespace longstraw
