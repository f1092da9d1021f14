#include "longstraw/policy/group_json.hpp"

#include "longstraw/core/json_check.hpp"
#include "longstraw/policy/non_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace longstraw {
namespace {

using json = nlohmann::ordered_json;

// Log-probabilities above zero by more than any rounding of a log-softmax.
constexpr double largest_logprob = 1e-3;

// A short form of `value` for messages; cheap for long lists too.
std::string shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  std::string text = json_text(value);
  if (text.starts_with(str("\"{}", non_number_mark))) text.erase(1, non_number_mark.size());
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

double number(const json& value, const std::string& where) {
  require(value.is_number(), "{} is {}, expected a number", where, shown(value));
  const double x = value.get<double>();
  require(std::isfinite(x), "{} is not finite", where);
  return x;
}

[[noreturn]] void refuse_token(const std::string& where, int64_t index, const std::string& value) {
  throw Error(
      str("{}[{}] is {}, expected a token id (0 or more, below 2^31)", where, index, value));
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
    if (!fits) refuse_token(str("{}: {}", where, key), std::ssize(ids), shown(id));
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

}  // namespace

void check_tokens(std::span<const int32_t> ids, int64_t begin, const std::string& where) {
  const auto bad = std::find_if(ids.begin(), ids.end(), [](int32_t id) { return id < 0; });
  if (bad != ids.end()) refuse_token(where, begin + (bad - ids.begin()), str("{}", *bad));
}

std::string identity(const json& object, const std::string& where) {
  const json& value = required_member(object, "id", where);
  require(value.is_string() || value.is_number_integer(), "{}: id is {}, expected a text", where,
          shown(value));
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  require(!text.empty(), "{}: id is empty", where);
  return text;
}

RawGroup raw_group(json object, const LinePlace& place) {
  std::string where = str("{} line {}", place.file, place.line);
  require(object.is_object(), "{}: {} is no group (an object with id, prompt and responses)", where,
          shown(object));
  where += ": group " + identity(object, where);
  std::vector<int32_t> ids = token_ids(object, "prompt", where);
  object["prompt"] = nullptr;
  return {.place = place, .object = std::move(object), .prompt = std::move(ids), .marked = false};
}

Group parse_group(const RawGroup& raw, std::vector<std::string>& faults) {
  std::string where = str("{} line {}", raw.place.file, raw.place.line);
  Group group;
  group.line = raw.place.line;
  group.id = identity(raw.object, where);
  where += ": group " + group.id;
  require(raw.prompt.size() > 0, "{}: prompt is empty", where);
  group.prompt = raw.prompt;
  const json& responses = required_member(raw.object, "responses", where);
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

void add_scores(json& object, const std::string& key, const Scores& scores) {
  for (auto& response : object.at("responses")) {
    const auto id = response.find("id");
    if (id == response.end()) continue;
    const auto found = scores.find(id->is_string() ? id->get<std::string>() : id->dump());
    if (found != scores.end()) response[key] = found->second;
  }
}

}  // namespace longstraw
