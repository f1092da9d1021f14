// One line of a rollouts file: JSON to a group. Files and duties between lines are rollouts.hpp's.
#pragma once

#include "longstraw/policy/rollouts.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace longstraw {

struct LinePlace {
  std::string file;
  int64_t line = 0;
};

/// The group in `text`. A response with a fault of its own is left out and its fault added to
/// `faults`; any other fault throws. Both name file, line, group, response, field and position.
Group parse_group(const std::string& text, const LinePlace& place,
                  std::vector<std::string>& faults);

/// `text` with NaN, Infinity and -Infinity, which some writers put where JSON has no word for them,
/// and numbers beyond every type (1e999) as JSON strings that start with `mark`.
std::string with_quoted_non_numbers(const std::string& text, std::string_view mark = "");

}  // namespace longstraw
