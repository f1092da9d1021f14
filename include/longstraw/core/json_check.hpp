// The one way out for JSON, and the one way in for JSON from outside, which is checked before it is
// parsed: for nesting that recursion over its values can bear, and for keys given twice, of which a
// parser silently takes one.
#pragma once

#include "longstraw/core/check.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace longstraw {

/// Lists and objects within each other; what we read has a few.
constexpr size_t deepest_json = 64;

/// A SAX consumer of the JSON library, whose type is `Json`.
template <class Json>
class JsonCheck {
 public:
  JsonCheck(std::string_view where, std::string_view cure) : where_(where), cure_(cure) {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(int64_t) { return true; }
  bool number_unsigned(uint64_t) { return true; }
  bool number_float(double, const std::string&) { return true; }
  bool string(const std::string&) { return true; }
  bool binary(typename Json::binary_t&) { return true; }
  bool start_object(size_t) { return enter(); }
  bool start_array(size_t) { return enter(); }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(const std::string& name) {
    if (!keys_.back().insert(name).second)
      throw Error(str("{}: key \"{}\" is given twice{}", where_, name, cure_));
    return true;
  }
  template <class Fault>
  bool parse_error(size_t, const std::string&, const Fault& fault) {
    fault_ = fault.what();
    return false;
  }

  /// Why the text is no JSON; empty: it is.
  const std::string& fault() const { return fault_; }

 private:
  bool enter() {
    require(keys_.size() < deepest_json, "{}: nested more than {} deep{}", where_, deepest_json,
            cure_);
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  std::string_view where_, cure_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
  std::string fault_;
};

/// A text read as JSON.
template <class Json>
struct ReadJson {
  Json value;
  std::string fault;  ///< why it is no JSON; empty: it is
};

/// Reads `text`; refuses deep nesting and doubled keys, naming `where` and ending in `cure`.
/// Nothing behind the place where it ceases to be JSON is looked at.
template <class Json>
ReadJson<Json> read_json(const std::string& text, std::string_view where, std::string_view cure) {
  JsonCheck<Json> check(where, cure);
  Json::sax_parse(text, &check);
  if (!check.fault().empty()) return {Json(), check.fault()};
  return {Json::parse(text), {}};
}

/// The same, which refuses what is no JSON too.
template <class Json>
Json parse_json(const std::string& text, std::string_view where, std::string_view cure = "") {
  ReadJson<Json> read = read_json<Json>(text, where, cure);
  require(read.fault.empty(), "{}: no valid JSON ({}){}", where, read.fault, cure);
  return std::move(read.value);
}

/// `json` as text. Bytes of names of files that are no UTF-8 are replaced.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

/// Whether parsed `value` is a whole number from 0 on that 64 bits with a sign hold.
template <class Json>
bool is_count(const Json& value) {
  return value.is_number_unsigned() && value.template get<uint64_t>() <= uint64_t{INT64_MAX};
}

}  // namespace longstraw
