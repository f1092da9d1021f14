// What the program says to people: one line a call, from rank 0; errors carry their rank.
#pragma once

#include "longstraw/core/check.hpp"

#include <string>

namespace longstraw {

enum class Level { info, warning, error };

/// Writes one line: information to standard output, warnings and errors to standard error, and all
/// of it to the log file where there is one. A rank that was told to be silent writes errors only.
void log(Level level, const std::string& line);

template <class... Args>
void log(Level level, fmt::format_string<Args...> format,
         Args&&... args) requires(sizeof...(Args) > 0) {
  log(level, fmt::format(format, std::forward<Args>(args)...));
}

/// Replaces the current line of the terminal that is standard output; an empty line removes it.
void log_transient(const std::string& line);
/// Whether standard output is a terminal.
bool on_terminal();

/// Whether this process speaks (rank 0) or only reports errors (the others).
void log_speaks(bool speaks);
/// Also appends every line to `path`.
void log_to_file(const std::string& path);

}  // namespace longstraw
