// Numbers that JSON has no word for, which some writers put there all the same: NaN, Infinity and
// -Infinity, and numbers beyond every type (1e999).
#pragma once

#include <string>
#include <string_view>

namespace longstraw {

/// What a quoted non-number starts with that is to be written as it was.
constexpr std::string_view non_number_mark = "\\u0001";

/// `text` with non-numbers as JSON strings that start with `mark`.
std::string with_quoted_non_numbers(const std::string& text, std::string_view mark = "");

/// Undoes `with_quoted_non_numbers(..., non_number_mark)` in JSON written since.
std::string with_bare_non_numbers(const std::string& text);

}  // namespace longstraw
