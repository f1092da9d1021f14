#include "longstraw/core/check.hpp"

namespace longstraw {

std::string printable(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool control = (0 <= c && c < ' ' && c != '\n' && c != '\t') || c == 0x7f;
    result += control ? str("\\x{:02x}", c) : std::string(1, c);
  }
  return result;
}

void assertion_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(str("{}:{}: assertion failed: {}", file, line, condition));
}

}  // namespace longstraw
