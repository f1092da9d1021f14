// Typed reading of one JSON object of a config.json, with errors that name file and key. What the
// keys mean is left to its users.
#pragma once

#include "longstraw/core/check.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace longstraw {

/// Sizes are 1 to this: products of two, and of a few such, stay within 64 bits.
constexpr int64_t largest_size = int64_t{1} << 28;

/// A view of `json`, which outlives it. A key whose value is null counts as absent.
class ConfigSection {
 public:
  using Json = nlohmann::json;

  ConfigSection(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    require(json.is_object(), "{}: not a JSON object", where_);
  }

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const std::string& where() const { return where_; }
  const Json& json() const { return json_; }

  int64_t size(const char* key) const {
    const Json& value = at(key);
    require(value.is_number_integer(), "{}: {} is {}, not an integer", where_, key, value.dump());
    const auto number = value.get<int64_t>();
    require(number >= 1 && number <= largest_size, "{}: {} = {} is out of range (1 to 2^28)",
            where_, key, number);
    return number;
  }
  int64_t size(const char* key, int64_t absent) const { return has(key) ? size(key) : absent; }

  double number(const char* key) const {
    const Json& value = at(key);
    require(value.is_number(), "{}: {} is {}, not a number", where_, key, value.dump());
    return value.get<double>();
  }
  double number(const char* key, double absent) const { return has(key) ? number(key) : absent; }

  std::string text(const char* key) const {
    const Json& value = at(key);
    require(value.is_string(), "{}: {} is {}, not a string", where_, key, value.dump());
    return value.get<std::string>();
  }
  std::string text(const char* key, const std::string& absent) const {
    return has(key) ? text(key) : absent;
  }

  std::optional<bool> flag(const char* key) const {
    if (!has(key)) return std::nullopt;
    const Json& value = at(key);
    require(value.is_boolean(), "{}: {} is {}, not true or false", where_, key, value.dump());
    return value.get<bool>();
  }

  ConfigSection section(const char* key) const { return {at(key), where_ + ": " + key}; }

  const Json& at(const char* key) const {
    require(has(key), "{}: {} is missing", where_, key);
    return json_.at(key);
  }

 private:
  const Json& json_;
  std::string where_;
};

}  // namespace longstraw
