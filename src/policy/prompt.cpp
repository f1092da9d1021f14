#include "longstraw/policy/prompt.hpp"

#include "longstraw/core/check.hpp"

#include <utility>

namespace longstraw {

Prompt::Prompt(std::vector<int32_t> ids)
    : ids_(std::move(ids)), place_{0, static_cast<int64_t>(ids_.size())} {}

Prompt::Prompt(std::initializer_list<int32_t> ids) : Prompt(std::vector<int32_t>(ids)) {}

Prompt::Prompt(Range place, ReadTokens read) : place_(place), read_(std::move(read)) {}

std::vector<int32_t> Prompt::ids(Range positions) const {
  LONGSTRAW_ASSERT(positions.begin >= 0 && positions.end <= size() && positions.size() >= 0);
  if (!read_) return {ids_.begin() + positions.begin, ids_.begin() + positions.end};
  std::vector<int32_t> ids(positions.size());
  if (!ids.empty()) read_(place_.begin + positions.begin, ids);
  return ids;
}

int32_t Prompt::last() const { return ids({size() - 1, size()}).front(); }

}  // namespace longstraw
