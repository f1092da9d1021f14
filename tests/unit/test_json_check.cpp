#include "longstraw/core/json_check.hpp"

#include "support/errors.hpp"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

namespace longstraw {
namespace {

using Json = nlohmann::json;
using support::expect_parts;

// That of what is no JSON is left out.
std::string refusal(const std::string& text) {
  return support::refusal_of([&] { read_json<Json>(text, "f line 3", " - mend it"); }).message;
}

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonCheck, NestingHasAnEnd) {
  EXPECT_EQ(refusal(nested(deepest_json)), "");
  for (const size_t depth : {deepest_json + 1, size_t{200'000}})
    EXPECT_EQ(refusal(nested(depth)), "f line 3: nested more than 64 deep - mend it");
  EXPECT_NE(refusal(std::string(200'000, '[')), "");
  std::string objects;
  for (int i = 0; i < 65; ++i) objects += R"({"a":)";
  EXPECT_NE(refusal(objects), "");
  EXPECT_EQ(refusal("[" + nested(63) + "," + nested(63) + "]"), "");
}

TEST(JsonCheck, AKeyIsGivenOnceInAnObject) {
  EXPECT_EQ(refusal(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})"), "");
  expect_parts(refusal(R"({"a": 1, "b": 2, "a": 1})"), {"f line 3", "key \"a\" is given twice"});
  expect_parts(refusal(R"([{"b": {"x": 1, "\u0078": 1}}])"), {"key \"x\" is given twice"});
}

TEST(JsonCheck, WhatIsNoJsonIsToldOrRefused) {
  for (const char* text : {"", "{", "[1,", "NaN", "{\"a\": 1e999}", "\"\xe2\x82\"", "]"}) {
    EXPECT_NE(read_json<Json>(text, "f", "").fault, "") << text;
    expect_parts(
        support::refusal_of([&] { parse_json<Json>(text, "f line 3", " - mend it"); }).message,
        {"f line 3: no valid JSON (", ") - mend it"});
  }
}

TEST(JsonCheck, JsonIsRead) {
  EXPECT_EQ(parse_json<Json>(R"({"a": [1, "b"]})", "f"), (Json{{"a", {1, "b"}}}));
  EXPECT_EQ(read_json<Json>("[2]", "f", "").value, (Json{2}));
}

TEST(JsonCheck, WhatIsWrittenIsUtf8) {
  EXPECT_EQ(json_text(Json{{"a", "\xe9x"}}), "{\"a\":\"\xef\xbf\xbdx\"}");
}

TEST(JsonCheck, CountsAreWholeAndWithin64Bits) {
  for (const char* text : {"0", "1", "9223372036854775807"})
    EXPECT_TRUE(is_count(Json::parse(text))) << text;
  for (const char* text : {"-1", "1.0", "1e300", "9223372036854775808", "\"1\"", "null", "true"})
    EXPECT_FALSE(is_count(Json::parse(text))) << text;
}

}  // namespace
}  // namespace longstraw
