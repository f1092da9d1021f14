#include "conventions/source.hpp"

#include "longstraw/core/check.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iterator>

namespace longstraw::conventions {
namespace {

namespace fs = std::filesystem;

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Where the literal or comment that starts at `at` ends, or `at` when none starts there.
size_t end_of_skipped(std::string_view text, size_t at) {
  const auto after = [&](std::string_view close, size_t from) {
    const size_t found = text.find(close, from);
    return found == std::string_view::npos ? text.size() : found + close.size();
  };
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
  if (rest.starts_with("/*")) return after("*/", at + 2);
  if (rest.starts_with("R\"")) {
    const std::string_view tag = rest.substr(2, rest.find('(') - 2);
    return after(str("){}\"", tag), at);
  }
  // An apostrophe inside a word separates digits.
  if (text[at] != '"' && (text[at] != '\'' || (at > 0 && in_word(text[at - 1])))) return at;
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == text[at])
      return i + 1;
  }
  return text.size();
}

std::string one_line(std::string_view text) {
  std::string line;
  for (char c : text) {
    const bool blank = std::isspace(static_cast<unsigned char>(c));
    if (!blank)
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  return line;
}

// Whether a brace after `head` opens a function body: it has a list of parameters and is no type,
// namespace or initialiser.
bool opens_function(std::string head) {
  while (head.starts_with("template")) {
    int depth = 0;
    size_t i = head.find('<');
    for (; i < head.size(); ++i) {
      depth += (head[i] == '<') - (head[i] == '>');
      if (depth == 0) break;
    }
    head = i < head.size() ? head.substr(head.find_first_not_of(' ', i + 1)) : "";
  }
  for (std::string_view word :
       {"namespace", "class ", "struct ", "enum ", "union ", "extern ", "using "})
    if (head.starts_with(word)) return false;
  const size_t parameters = head.find('(');
  const size_t equals = head.find(" = ");
  return parameters != std::string::npos && (equals == std::string::npos || equals > parameters);
}

int parameters_of(const std::string& head) {
  const size_t begin = head.find('(');
  int depth = 0, angles = 0, commas = 0;
  bool any = false;
  for (size_t i = begin; i < head.size(); ++i) {
    const char c = head[i];
    depth += (c == '(' || c == '{' || c == '[') - (c == ')' || c == '}' || c == ']');
    angles += (c == '<') - (c == '>');
    if (depth == 0) break;
    any |= i > begin && c != ' ';
    commas += c == ',' && depth == 1 && angles == 0;
  }
  return any ? commas + 1 : 0;
}

std::string without_directives(std::string code) {
  bool continued = false;
  for (size_t at = 0; at < code.size();) {
    const size_t end = std::min(code.find('\n', at), code.size());
    const size_t first = code.find_first_not_of(" \t", at);
    if (continued || (first < end && code[first] == '#')) {
      continued = end > at && code[end - 1] == '\\';
      std::fill(code.begin() + at, code.begin() + end, ' ');
    }
    at = end + 1;
  }
  return code;
}

}  // namespace

int line_of(std::string_view text, size_t position) {
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + position, '\n'));
}

std::string code_of(std::string_view text, bool blank_strings) {
  std::string code(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = end_of_skipped(text, at);
    if (end == at) {
      ++at;
      continue;
    }
    const bool comment = text[at] == '/';
    if (comment || blank_strings)
      for (size_t i = at + !comment; i < end - !comment; ++i)
        if (code[i] != '\n') code[i] = ' ';
    at = end;
  }
  return code;
}

std::vector<Function> functions_of(const std::string& stripped) {
  const std::string code = without_directives(stripped);
  std::vector<Function> found;
  int depth = 0, function_depth = -1;
  size_t head_begin = 0, parentheses = 0;
  for (size_t at = 0; at < code.size(); ++at) {
    const char c = code[at];
    if (c == '(') ++parentheses;
    if (c == ')' && parentheses > 0) --parentheses;
    if (c == '{') {
      const std::string head = one_line(std::string_view(code).substr(head_begin, at - head_begin));
      // A brace inside parentheses is a default argument or an initialiser.
      if (function_depth < 0 && parentheses == 0 && opens_function(head)) {
        function_depth = depth;
        const size_t first = code.find_first_not_of(" \n", head_begin);
        found.push_back({head, line_of(code, first), 0, parameters_of(head)});
      }
      ++depth;
    }
    if (c == '}') {
      --depth;
      if (depth == function_depth) {
        function_depth = -1;
        found.back().lines = line_of(code, at) - found.back().first_line + 1;
      }
    }
    if ((c == '{' || c == '}' || c == ';') && function_depth < 0 && parentheses == 0)
      head_begin = at + 1;
  }
  return found;
}

std::vector<Source> sources_of(const std::vector<std::string>& folders) {
  constexpr std::array suffixes = {".cpp", ".hpp", ".cu"};
  const fs::path root = LONGSTRAW_SOURCE_DIR;
  std::vector<Source> sources;
  for (const auto& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string suffix = entry.path().extension().string();
      if (std::find(suffixes.begin(), suffixes.end(), suffix) == suffixes.end()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      std::string text(std::istreambuf_iterator<char>(file), {});
      sources.push_back({fs::relative(entry.path(), root).string(), text, code_of(text, false),
                         code_of(text, true)});
    }
  }
  std::sort(sources.begin(), sources.end(),
            [](const Source& a, const Source& b) { return a.path < b.path; });
  return sources;
}

}  // namespace longstraw::conventions
