#include "longstraw/deck/deck.hpp"

#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <sstream>

namespace longstraw {
namespace {

constexpr int bad_deck = 2;

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// Levenshtein's distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string_view section_of(std::string_view key) { return key.substr(0, key.find('.')); }
std::string_view name_of_key(std::string_view key) { return key.substr(key.find('.') + 1); }

template <class T>
bool number(const std::string& value, T& out) {
  const char* end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, out);
  return result.ec == std::errc() && result.ptr == end;
}

}  // namespace

Deck::Deck(std::string_view text, const std::string& file, std::span<const std::string> overrides)
    : file_(file) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // UTF-8 mark of some editors
  std::istringstream lines{std::string(text)};
  std::string line, section;
  for (int number = 1; std::getline(lines, line); ++number) parse_line(line, number, section);
  for (const auto& argument : overrides) take_override(argument);
}

Deck Deck::read(const std::string& file, std::span<const std::string> overrides) {
  std::ifstream stream(file, std::ios::binary);
  require(
      stream.good() && !std::filesystem::is_directory(file),
      str("cannot read deck {} (no such file, or not readable) - check the path after -i", file),
      bad_deck);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  return Deck(text, file, overrides);
}

// Boost parses each line by itself, since it does not tell which line an option came from.
void Deck::parse_line(const std::string& line, int number, std::string& section) {
  namespace po = boost::program_options;
  const auto content = trimmed(std::string_view(line).substr(0, line.find('#')));
  if (content.empty()) return;
  const std::string place = str("{} line {}", file_, number);
  if (content.front() == '[') {
    require(content.back() == ']' && content.size() > 2,
            str("{}: '{}' is no section - write [name]", place, content), bad_deck);
    section = trimmed(content.substr(1, content.size() - 2));
    return;
  }
  std::istringstream one((section.empty() ? "" : "[" + section + "]\n") + std::string(content));
  po::basic_parsed_options<char> parsed(nullptr);
  try {
    parsed = po::parse_config_file(one, po::options_description(), true);
  } catch (const po::error&) {
    throw Error(str("{}: '{}' is no 'key = value' - comments start with #", place, content),
                bad_deck);
  }
  for (const auto& option : parsed.options) {
    const std::string& key = option.string_key;
    require(key.find('.') != std::string::npos,
            str("{}: key '{}' has no section - put it below a line [section]", place, key),
            bad_deck);
    auto& entry = entries_[key];
    require(!entry.given,
            str("{}: key {} is given twice ('{}' at line {}, '{}' at line {}) - remove one", file_,
                key, entry.value, entry.line, option.value.at(0), number),
            bad_deck);
    entry.value = option.value.at(0);
    entry.line = number;
    entry.given = true;
    order_.push_back(key);
  }
}

void Deck::take_override(const std::string& argument) {
  const auto equals = argument.find('=');
  const std::string key(trimmed(std::string_view(argument).substr(0, equals)));
  require(equals != std::string::npos && key.find('.') != std::string::npos,
          str("command line: '{}' is no 'section.key=value'", argument), bad_deck);
  const std::string value(trimmed(std::string_view(argument).substr(equals + 1)));
  require(value.find_first_of("#\n\r") == std::string::npos,
          str("command line: value of {} holds '#' or a line end, which a deck cannot", key),
          bad_deck);
  auto& entry = entries_[key];
  require(!entry.from_command_line,
          str("command line: key {} is given twice ('{}' and '{}') - remove one", key, entry.value,
              value),
          bad_deck);
  if (!entry.given) order_.push_back(key);
  entry.value = value;
  entry.line = 0;
  entry.from_command_line = entry.given = true;
}

Deck::Entry& Deck::ask(std::string_view key) {
  LONGSTRAW_ASSERT(key.find('.') != std::string_view::npos);
  auto found = entries_.find(key);
  if (found == entries_.end()) found = entries_.emplace(std::string(key), Entry{}).first;
  found->second.asked = true;
  return found->second;
}

const std::string& Deck::value_of(std::string_view key, std::string_view standard) {
  Entry& entry = ask(key);
  if (!entry.given && std::find(order_.begin(), order_.end(), key) == order_.end()) {
    entry.value = standard;
    order_.emplace_back(key);
  }
  return entry.value;
}

const std::string& Deck::required_value_of(std::string_view key) {
  const Entry& entry = ask(key);
  require(entry.given,
          str("{}: key {} is missing - add '{} = ...' to section [{}]", file_, key,
              name_of_key(key), section_of(key)),
          bad_deck);
  return entry.value;
}

template <DeckValue T>
T Deck::parsed(std::string_view key, const std::string& value) const {
  if constexpr (std::same_as<T, std::string>) {
    return value;
  } else if constexpr (std::same_as<T, bool>) {
    if (value != "true" && value != "false") fail(key, "expected true or false");
    return value == "true";
  } else if constexpr (std::same_as<T, int64_t>) {
    int64_t result = 0;
    if (!number(value, result)) fail(key, "expected a whole number");
    return result;
  } else {
    double result = 0;
    if (!number(value, result) || !std::isfinite(result)) fail(key, "expected a number");
    return result;
  }
}

void Deck::fail(std::string_view key, const std::string& why) const {
  throw Error(str("{} ({})", where(key), why), bad_deck);
}

template <DeckValue T>
T Deck::get(std::string_view key) {
  return parsed<T>(key, required_value_of(key));
}

template <DeckValue T>
T Deck::get(std::string_view key, T standard) {
  return parsed<T>(key, value_of(key, str("{}", standard)));
}

template <class T>
requires std::same_as<T, int64_t> || std::same_as<T, double> T Deck::get_in(std::string_view key,
                                                                            T standard, T low,
                                                                            T high) {
  LONGSTRAW_ASSERT(low <= standard && standard <= high);
  const T value = get<T>(key, standard);
  if (value < low || value > high) {
    const bool open = high == std::numeric_limits<T>::max();
    fail(key, open ? str("allowed: at least {}", low) : str("allowed: {} to {}", low, high));
  }
  return value;
}

std::string Deck::one_of(std::string_view key, std::string_view standard,
                         std::initializer_list<std::string_view> allowed) {
  const std::string value = value_of(key, standard);
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    fail(key, str("allowed: {}", fmt::join(allowed, ", ")));
  return value;
}

std::string Deck::resolved(Entry& entry) const {
  namespace fs = std::filesystem;
  if (entry.value.empty()) return entry.value;
  const fs::path base = entry.from_command_line ? fs::path() : fs::path(file_).parent_path();
  const fs::path path = fs::absolute(base / entry.value).lexically_normal();
  const std::string value = path.has_filename() ? path.string() : path.parent_path().string();
  require(value.find_first_of("#\n\r") == std::string::npos && trimmed(value) == value,
          str("{}: path '{}' holds '#' or a line end, or ends in a blank, which a deck cannot - "
              "rename the folder",
              file_, value),
          bad_deck);
  return entry.value = value;
}

std::string Deck::path(std::string_view key) {
  if (required_value_of(key).empty()) fail(key, "expected a path");
  return resolved(ask(key));
}

std::string Deck::path(std::string_view key, std::string_view standard) {
  value_of(key, standard);
  return resolved(ask(key));
}

bool Deck::given(std::string_view key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && found->second.given;
}

std::string Deck::where(std::string_view key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return str("{} (not given)", key);
  const Entry& entry = found->second;
  const std::string place = entry.from_command_line ? "command line"
                            : entry.given           ? str("{} line {}", file_, entry.line)
                                                    : str("{} (default)", file_);
  return str("{}: {} = {}", place, key, entry.value);
}

void Deck::check_all_read() const {
  std::vector<std::string> faults;
  for (const auto& key : order_) {
    if (entries_.at(key).asked) continue;
    std::string nearest;
    auto least = std::numeric_limits<size_t>::max();
    size_t most_common = 0;
    for (const auto& [known, entry] : entries_) {
      if (!entry.asked) continue;
      // The right name in the wrong section is nearer than any misspelling.
      const bool moved = name_of_key(known) == name_of_key(key);
      const size_t distance = moved ? 0 : edit_distance(key, known);
      // As near as another: the one that begins alike for longer.
      const size_t common = std::ranges::mismatch(key, known).in1 - key.begin();
      if (distance < least || (distance == least && common > most_common))
        least = distance, most_common = common, nearest = known;
    }
    faults.push_back(where(key) + " (unknown key)" +
                     (nearest.empty() ? "" : " - did you mean " + nearest + "?"));
  }
  require(faults.empty(), str("{}", fmt::join(faults, "\n")), bad_deck);
}

std::vector<std::pair<std::string, std::string>> Deck::values() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& key : order_) all.emplace_back(key, entries_.at(key).value);
  return all;
}

std::string Deck::completed() const {
  std::vector<std::string_view> sections;
  for (const auto& key : order_)
    if (std::find(sections.begin(), sections.end(), section_of(key)) == sections.end())
      sections.push_back(section_of(key));
  std::string text;
  for (const auto section : sections) {
    text += str("{}[{}]\n", text.empty() ? "" : "\n", section);
    for (const auto& key : order_)
      if (section_of(key) == section)
        text += str("{} = {}\n", name_of_key(key), entries_.at(key).value);
  }
  return text;
}

template std::string Deck::get<std::string>(std::string_view);
template int64_t Deck::get<int64_t>(std::string_view);
template double Deck::get<double>(std::string_view);
template bool Deck::get<bool>(std::string_view);
template std::string Deck::get<std::string>(std::string_view, std::string);
template int64_t Deck::get<int64_t>(std::string_view, int64_t);
template double Deck::get<double>(std::string_view, double);
template bool Deck::get<bool>(std::string_view, bool);
template int64_t Deck::get_in<int64_t>(std::string_view, int64_t, int64_t, int64_t);
template double Deck::get_in<double>(std::string_view, double, double, double);

}  // namespace longstraw
