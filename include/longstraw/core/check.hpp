// Errors: what is checked, always or in debug builds only, and how an error travels to `main`.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace longstraw {

/// Format a message; `std::format` is missing from the compilers we support.
template <class... Args>
std::string str(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

/// `text` with its control characters, but for line ends and tabs, as \xNN: what a file holds must
/// neither steer a terminal nor end a message.
std::string printable(const std::string& text);

/// A fault in deck, arguments, files or environment. `status` is the exit status it leads to: 2 for
/// deck and arguments, 1 for the rest. `everywhere` tells that every rank throws the same error, so
/// that one message is printed and all ranks end by themselves.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int status = 1, bool everywhere = false)
      : std::runtime_error(printable(message)), status_(status), everywhere_(everywhere) {}
  int status() const { return status_; }
  bool everywhere() const { return everywhere_; }

 private:
  int status_;
  bool everywhere_;
};

/// Throws `Error` unless `condition`. Message: what is wrong (why) - what to do.
inline void require(bool condition, const std::string& message, int status = 1) {
  if (!condition) throw Error(message, status);
}

/// As `require`, formatting the message only when it is needed.
template <class... Args>
void require(bool condition, fmt::format_string<Args...> format,
             Args&&... args) requires(sizeof...(Args) > 0) {
  if (!condition) throw Error(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace longstraw

/// Our own mistakes; off in release builds (NDEBUG without LONGSTRAW_ASSERTS).
#if defined(LONGSTRAW_ASSERTS)
#define LONGSTRAW_ASSERT(condition) \
  ((condition) ? void(0) : ::longstraw::assertion_failed(#condition, __FILE__, __LINE__))
#else
#define LONGSTRAW_ASSERT(condition) ((void)sizeof(condition))
#endif
