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
  if (rest[0] != '-' && (rest[0] < '0' || rest[0] > '9')) return {};
  return rest.substr(0, rest.find_first_not_of("0123456789+-.eE"));
}

// Whether a number fits a double.
bool is_finite(std::string_view word) {
  return std::isfinite(std::strtod(std::string(word).c_str(), nullptr));
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
      quoted += is_finite(word) ? std::string(word) : str("\"{}{}\"", mark, word);
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
  size_t done = 0;
  for (size_t at; (at = line.find(start, done)) != std::string::npos;) {
    const size_t word = at + start.size(), end = line.find('"', word);
    bare += line.substr(done, at - done) + line.substr(word, end - word);
    done = end + 1;
  }
  return bare + line.substr(done);
}

}  // namespace longstraw
