// One line of a rollouts file: JSON to a group. Files and duties between lines are rollouts.hpp's.
#pragma once

#include "longstraw/policy/rollouts.hpp"

#include <string>
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
/// as JSON strings.
std::string with_quoted_non_numbers(const std::string& text);

}  // namespace longstraw
