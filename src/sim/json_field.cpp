#include "longstraw/sim/json_field.hpp"

#include "longstraw/core/json_check.hpp"

#include <nlohmann/json.hpp>

namespace longstraw {

void json_field(DumpFields& fields, const std::string& path, const nlohmann::json& value,
                std::string_view meaning, const std::function<void(const nlohmann::json&)>& take) {
  using Json = nlohmann::json;
  std::string text = json_text(value);
  fields.text(path, text, meaning);
  if (!fields.restoring()) return;
  std::string fault;
  try {
    return take(parse_json<Json>(text, "its text"));
  } catch (const Error& error) {
    fault = error.what();
  } catch (const Json::exception& error) {
    fault = error.what();
  }
  throw Error(str("{} is damaged: {}", path, fault), 1, true);
}

}  // namespace longstraw
