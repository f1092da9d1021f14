// C++ sources as the conventions tests see them: without comments, cut into functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace longstraw::conventions {

/// `text` with comments, and with `blank_strings` what string and character literals hold, replaced
/// by blanks; lines stay where they are.
std::string code_of(std::string_view text, bool blank_strings);

struct Function {
  std::string head;  // what stands before its brace, on one line
  int first_line = 0, lines = 0;
  int parameters = 0;
};

/// Function definitions in code that `code_of` has stripped of comments and strings. Lambdas and
/// local classes belong to the function around them.
std::vector<Function> functions_of(const std::string& code);

struct Source {
  std::string path;  // from the root of the project
  std::string text;
  std::string code;      // without comments
  std::string skeleton;  // nor strings
};

/// All .cpp, .hpp and .cu files below `folders` of the project, sorted.
std::vector<Source> sources_of(const std::vector<std::string>& folders);

/// Number of the line on which `position` lies, from 1.
int line_of(std::string_view text, size_t position);

}  // namespace longstraw::conventions
