#include "longstraw/policy/rollout_lines.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>

namespace longstraw {
namespace {

using nlohmann::json;

// Log-probabilities above zero by more than any rounding of a log-softmax.
constexpr double largest_logprob = 1e-3;
constexpr std::array<std::string_view, 3> non_numbers = {"-Infinity", "Infinity", "NaN"};
// What a quoted non-number starts with while a line passes through `write_scored`.
constexpr std::string_view passing = "\\u0001";

json parsed_line(const std::string& text, const std::string& where) {
  const auto parse = [](const std::string& line) { return json::parse(line); };
  try {
    try {
      return parse(text);
    } catch (const json::exception&) {
      return parse(with_quoted_non_numbers(text));
    }
  } catch (const json::exception& error) {
    throw Error(str("{}: no valid JSON ({}) - one group a line is expected", where, error.what()));
  }
}

// A short form of `value` for messages; cheap for long lists too.
std::string shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

const json* member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const json& required_member(const json& object, const char* key, const std::string& where) {
  const json* value = member(object, key);
  require(value != nullptr, "{}: {} is missing", where, key);
  return *value;
}

// Text, or a whole number as text: both are in use as ids.
std::string identity(const json& object, const std::string& where) {
  const json& value = required_member(object, "id", where);
  require(value.is_string() || value.is_number_integer(), "{}: id is {}, expected a text", where,
          shown(value));
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  require(!text.empty(), "{}: id is empty", where);
  return text;
}

double number(const json& value, const std::string& where) {
  require(value.is_number(), "{} is {}, expected a number", where, shown(value));
  const double x = value.get<double>();
  require(std::isfinite(x), "{} is not finite", where);
  return x;
}

std::vector<int32_t> token_ids(const json& object, const char* key, const std::string& where) {
  const json& list = required_member(object, key, where);
  require(list.is_array(), "{}: {} is {}, expected a list of token ids", where, key, shown(list));
  require(!list.empty(), "{}: {} is empty", where, key);
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const auto& id : list) {
    const bool fits = id.is_number_unsigned() &&
                      id.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()};
    if (!fits)
      throw Error(str("{}: {}[{}] is {}, expected a token id (0 or more, below 2^31)", where, key,
                      ids.size(), shown(id)));
    ids.push_back(static_cast<int32_t>(id.get<uint64_t>()));
  }
  return ids;
}

// The list `key`, one value a token; empty when it is not given.
const json* per_token(const json& object, const char* key, size_t tokens,
                      const std::string& where) {
  const json* list = member(object, key);
  if (list == nullptr) return nullptr;
  require(list->is_array(), "{}: {} is {}, expected a list", where, key, shown(*list));
  require(list->size() == tokens, "{}: {} has {} values for {} ids", where, key, list->size(),
          tokens);
  return list;
}

std::vector<double> logprobs(const json& object, const char* key, size_t tokens,
                             const std::string& where) {
  std::vector<double> values;
  const json* list = per_token(object, key, tokens, where);
  if (list == nullptr) return values;
  values.reserve(tokens);
  for (const auto& value : *list) {
    if (!value.is_number())  // the message costs more than the check
      throw Error(
          str("{}: {}[{}] is {}, expected a number", where, key, values.size(), shown(value)));
    const double x = value.get<double>();
    if (!std::isfinite(x) || x > largest_logprob)
      throw Error(str("{}: {}[{}] is {}, expected a log-probability (0 or less)", where, key,
                      values.size(), x));
    values.push_back(x);
  }
  return values;
}

std::vector<uint8_t> loss_mask(const json& object, size_t tokens, const std::string& where) {
  std::vector<uint8_t> mask;
  const json* list = per_token(object, "loss_mask", tokens, where);
  if (list == nullptr) return mask;
  for (const auto& value : *list) {
    if (value != 0 && value != 1)
      throw Error(
          str("{}: loss_mask[{}] is {}, expected 0 or 1", where, mask.size(), shown(value)));
    mask.push_back(value.get<int>() == 1);
  }
  return mask;
}

Response parsed_response(const json& object, std::string where, size_t position) {
  require(object.is_object(), "{}: responses[{}] is {}, expected an object", where, position,
          shown(object));
  Response response;
  response.id = identity(object, str("{}: responses[{}]", where, position));
  where += ": response " + response.id;
  response.ids = token_ids(object, "ids", where);
  response.reward = number(required_member(object, "reward", where), where + ": reward");
  const size_t tokens = response.ids.size();
  response.logprobs = logprobs(object, "logprobs", tokens, where);
  response.ref_logprobs = logprobs(object, "ref_logprobs", tokens, where);
  response.loss_mask = loss_mask(object, tokens, where);
  if (const json* advantage = member(object, "advantage"))
    response.advantage = number(*advantage, where + ": advantage");
  if (const json* reason = member(object, "finish_reason")) {
    require(reason->is_string(), "{}: finish_reason is {}, expected a text", where, shown(*reason));
    response.finish_reason = reason->get<std::string>();
  }
  return response;
}

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

// Undoes `with_quoted_non_numbers(..., passing)` in a line written since.
std::string with_bare_non_numbers(const std::string& line) {
  const std::string start = str("\"{}", passing);
  std::string bare;
  size_t done = 0;
  for (size_t at; (at = line.find(start, done)) != std::string::npos;) {
    const size_t word = at + start.size(), end = line.find('"', word);
    bare += line.substr(done, at - done) + line.substr(word, end - word);
    done = end + 1;
  }
  return bare + line.substr(done);
}

}  // namespace

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

Group parse_group(const std::string& text, const LinePlace& place,
                  std::vector<std::string>& faults) {
  std::string where = str("{} line {}", place.file, place.line);
  const json object = parsed_line(text, where);
  require(object.is_object(), "{}: {} is no group (an object with id, prompt and responses)", where,
          shown(object));
  Group group;
  group.line = place.line;
  group.id = identity(object, where);
  where += ": group " + group.id;
  group.prompt = token_ids(object, "prompt", where);
  const json& responses = required_member(object, "responses", where);
  require(responses.is_array() && !responses.empty(),
          "{}: responses is {}, expected a list with at least one", where, shown(responses));
  for (size_t position = 0; position < responses.size(); ++position) {
    try {
      group.responses.push_back(parsed_response(responses[position], where, position));
    } catch (const Error& fault) {
      faults.emplace_back(fault.what());
    }
  }
  return group;
}

void write_scored(const std::string& from, const std::string& to, const std::string& key,
                  const Scores& scores) {
  using nlohmann::ordered_json;
  const std::string temporary = to + ".tmp";
  std::ifstream in(from, std::ios::binary);
  require(in.good(), "cannot read rollouts {}", from);
  std::ofstream out(temporary, std::ios::binary);
  require(out.good(), "cannot write {} - check the output path", temporary);
  std::string text;
  while (std::getline(in, text)) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto group = ordered_json::parse(text, nullptr, false);
    const bool strict = !group.is_discarded();
    if (!strict) group = ordered_json::parse(with_quoted_non_numbers(text, passing));
    for (auto& response : group.at("responses")) {
      const auto id = response.find("id");
      if (id == response.end()) continue;
      const auto found = scores.find(id->is_string() ? id->get<std::string>() : id->dump());
      if (found != scores.end()) response[key] = found->second;
    }
    const auto line = group.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    out << (strict ? line : with_bare_non_numbers(line)) << '\n';
  }
  out.close();
  std::error_code failed;
  if (out.good()) std::filesystem::rename(temporary, to, failed);
  if (!out.good() || failed) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw Error(str("cannot write {} (disk full?)", to));
  }
}

}  // namespace longstraw
