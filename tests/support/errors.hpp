// What a refusal says.
#pragma once

#include "longstraw/core/check.hpp"

#include <gmock/gmock.h>

#include <string>

namespace longstraw::support {

struct Refusal {
  std::string message;  // empty when nothing was refused
  int status = 0;
  bool everywhere = false;
};

template <class Act>
Refusal refusal_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return {error.what(), error.status(), error.everywhere()};
  }
  return {};
}

/// Expects that `text` contains each of `parts`.
inline void expect_parts(const std::string& text, std::initializer_list<std::string> parts) {
  for (const auto& part : parts) EXPECT_THAT(text, testing::HasSubstr(part));
}

}  // namespace longstraw::support
