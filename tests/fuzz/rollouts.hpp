// What holds of all rollouts that a reader lets pass, for the fuzz targets of both kinds of file.
#pragma once

#include "fuzz/fuzz.hpp"

#include "longstraw/policy/rollout_lines.hpp"

#include <cmath>
#include <vector>

namespace longstraw::fuzz {

inline void check(const Group& group) {
  for (const Response& response : group.responses) {
    must(std::isfinite(response.reward) && !response.ids.empty());
    for (const auto* list : {&response.logprobs, &response.ref_logprobs})
      must(list->empty() || list->size() == response.ids.size());
  }
}

/// The groups, written as lines, are read as the same.
inline void must_read_again(const std::vector<RawGroup>& groups) {
  const MemoryFile file({}, "-again");
  try {
    LineWriter writer(file.path());
    for (const RawGroup& group : groups) writer.put(group);
    writer.finish();
    LineReader reader(file.path());
    for (const RawGroup& group : groups) {
      const auto again = reader.next();
      must(again.has_value());
      must(again->object == group.object && again->prompt.ids({0, again->prompt.size()}) ==
                                                group.prompt.ids({0, group.prompt.size()}));
    }
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    must(false);
  }
}

}  // namespace longstraw::fuzz
