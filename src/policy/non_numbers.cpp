#include "longstraw/policy/non_numbers.hpp"

#include "longstraw/core/json_check.hpp"

#include <array>
#include <cmath>
#include <cstdlib>

namespace longstraw {
namespace {

constexpr std::array<std::string_view, 3> non_numbers = {"-Infinity", "Infinity", "NaN"};

// The non-number or number that starts at `at`; empty if none does.
std::string_view word_at(std::string_view text, size_t at) {
  const std::string_view rest = text.substr(at);
  for (const std::string_view word : non_numbers)
    if (rest.starts_with(word)) return word;
  if (rest.empty() || (rest[0] != '-' && (rest[0] < '0' || rest[0] > '9'))) return {};
  return rest.substr(0, rest.find_first_not_of("0123456789+-.eE"));
}

// Whether `word` as a whole is a non-number, or a number that no double holds.
bool is_non_number(std::string_view word) {
  const std::string text(word);
  char* end = nullptr;
  return word_at(text, 0) == word && !std::isfinite(std::strtod(text.c_str(), &end)) &&
         end == text.c_str() + text.size();
}

}  // namespace

MarkedJson parse_marked_json(const std::string& text, std::string_view where,
                             std::string_view cure) {
  using Json = nlohmann::ordered_json;
  ReadJson<Json> plain = read_json<Json>(text, where, cure);
  if (plain.fault.empty()) return {std::move(plain.value), false};
  return {parse_json<Json>(with_quoted_non_numbers(text, non_number_mark), where, cure), true};
}

std::string with_quoted_non_numbers(const std::string& text, std::string_view mark) {
  std::string quoted;
  quoted.reserve(text.size());
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (inside && text[i] == '\\' && i + 1 < text.size()) {
      quoted += text[i++];
    } else if (text[i] == '"') {
      inside = !inside;
    } else if (const auto word = inside ? std::string_view() : word_at(text, i); !word.empty()) {
      quoted += is_non_number(word) ? str("\"{}{}\"", mark, word) : std::string(word);
      i += word.size() - 1;
      continue;
    }
    quoted += text[i];
  }
  return quoted;
}

std::string with_bare_non_numbers(const std::string& line) {
  const std::string start = str("\"{}", non_number_mark);
  std::string bare;
  bare.reserve(line.size());
  bool inside = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (inside && line[i] == '\\') {
      bare += line[i++];
    } else if (line[i] == '"') {
      if (!inside && line.compare(i, start.size(), start) == 0) {
        const size_t begin = i + start.size(), end = line.find('"', begin);
        const std::string word = line.substr(begin, end - begin);
        if (is_non_number(word)) {  // other texts may start with the mark too
          bare += word;
          i = end;
          continue;
        }
      }
      inside = !inside;
    }
    bare += line[i];
  }
  return bare;
}

}  // namespace longstraw
