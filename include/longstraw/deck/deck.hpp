// The input deck: INI text with typed, checked reading, where every key is accounted for.
// What the keys mean is left to those who read them; `input/defaults.ini` lists all of them.
#pragma once

#include "longstraw/core/check.hpp"

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longstraw {

template <class T>
concept DeckValue = std::same_as<T, std::string> || std::same_as<T, int64_t> ||
    std::same_as<T, double> || std::same_as<T, bool>;

/// A deck is `[section]` lines and `key = value  # comment` lines; a key's full name is
/// `section.key`. Arguments `section.key=value` from the command line replace what the file says.
/// Giving a key twice in the file, or twice on the command line, is an error that names both
/// places.
///
/// Every fault is an `Error` of status 2 that names the place (file and line, or the command line),
/// the key, its value and what is allowed.
class Deck {
 public:
  /// `text` as if read from `file`, which is named in messages and whose folder is where relative
  /// paths of the deck start.
  Deck(std::string_view text, const std::string& file, std::span<const std::string> overrides = {});
  /// Reads `file` on the calling rank.
  static Deck read(const std::string& file, std::span<const std::string> overrides = {});

  /// The value of a key that must be given.
  template <DeckValue T>
  T get(std::string_view key);
  /// The value, or `standard` when the key is not given; the completed deck records which it was.
  template <DeckValue T>
  T get(std::string_view key, T standard);
  std::string get(std::string_view key, const char* standard) {
    return get<std::string>(key, standard);
  }
  /// As `get`, and `low <= value <= high`.
  template <class T>
  requires std::same_as<T, int64_t> || std::same_as<T, double> T get_in(std::string_view key,
                                                                        T standard, T low, T high);
  /// As `get`, and the value is one of `allowed`.
  std::string one_of(std::string_view key, std::string_view standard,
                     std::initializer_list<std::string_view> allowed);
  /// The value of a key that must be given, as an absolute path. A relative path starts at the deck
  /// file's folder when it stands in the file, and at the current folder when it was given on the
  /// command line. The completed deck holds the absolute path, so that it can be run from anywhere.
  std::string path(std::string_view key);
  /// As `path`; an empty value (also of `standard`) stays empty.
  std::string path(std::string_view key, std::string_view standard);

  bool given(std::string_view key) const;
  /// Where `key` was given and what it said, for messages: `deck.ini line 7: objective.x = 5`.
  std::string where(std::string_view key) const;

  /// An error for every key that was given and never asked for, naming the nearest key of those
  /// asked for so far. Call it when everything has been read.
  void check_all_read() const;
  /// All keys with their values, in the order in which they first appeared.
  std::vector<std::pair<std::string, std::string>> values() const;
  /// The deck with all defaults filled in, as text that `Deck` can read.
  std::string completed() const;

 private:
  struct Entry {
    std::string value;
    int line = 0;  // 0: from the command line, or a default
    bool from_command_line = false;
    bool given = false;
    bool asked = false;
  };

  void parse_line(const std::string& line, int number, std::string& section);
  void take_override(const std::string& argument);
  Entry& ask(std::string_view key);
  const std::string& value_of(std::string_view key, std::string_view standard);
  const std::string& required_value_of(std::string_view key);
  std::string resolved(Entry& entry) const;
  template <DeckValue T>
  T parsed(std::string_view key, const std::string& value) const;
  [[noreturn]] void fail(std::string_view key, const std::string& why) const;

  std::string file_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<std::string> order_;  // keys in the order in which they first appeared
};

}  // namespace longstraw
