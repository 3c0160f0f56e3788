#include "atoll/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace atl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string refusal(std::string_view text, const JsonRules& rules = {}) {
  try {
    parse_json(text, "dir/config.json", rules);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), rules.refusal);
    return error.what();
  }
  return "no error";
}

TEST(ParseJson, GivesTheValue) {
  EXPECT_EQ(parse_json(R"({"b": [1, {"c": null}], "a": "x"})", "f").dump(),
            R"({"a":"x","b":[1,{"c":null}]})");
  EXPECT_EQ(parse_ordered_json(R"({"b": 1, "a": 2})", "f").dump(), R"({"b":1,"a":2})");
}

TEST(ParseJson, SaysFileLineAndColumnInPlainWords) {
  EXPECT_THAT(refusal("{\n  \"a\": x}"),
              AllOf(StartsWith("dir/config.json: not valid JSON: line 2, column 8: "),
                    Not(HasSubstr("json.exception"))));
  EXPECT_THAT(refusal(""), StartsWith("dir/config.json: not valid JSON: line 1, column 1: "));
  EXPECT_THAT(refusal("{} {}"), StartsWith("dir/config.json: not valid JSON: line 1, column 4: "));
  EXPECT_THAT(refusal("[1e999]"), AllOf(StartsWith("dir/config.json: "), HasSubstr("1e999"),
                                        Not(HasSubstr("json.exception"))));
  EXPECT_THAT(refusal("{", {.refusal = ErrorKind::kUser}), HasSubstr("not valid JSON"));
}

TEST(ParseJson, DoesNotEndAtANulByte) {
  using namespace std::string_view_literals;
  EXPECT_EQ(refusal("{\"a\": 1}\n \0{\"a\": 2}"sv),
            "dir/config.json: not valid JSON: line 2, column 2: a NUL byte");
  EXPECT_EQ(refusal("{\"a\": 1}\0"sv),
            "dir/config.json: not valid JSON: line 1, column 9: a NUL byte");
  EXPECT_EQ(refusal("\0"sv), "dir/config.json: not valid JSON: line 1, column 1: a NUL byte");
}

TEST(ParseJson, RefusesAKeyThatStandsThereTwice) {
  EXPECT_EQ(refusal(R"({"a": 1, "b": {"a": 2}, "a": 3})"),
            "dir/config.json: \"a\" stands there twice");
  EXPECT_EQ(refusal(R"([{"a": 1}, {"a": 1}])"), "no error");
}

TEST(ParseJson, RefusesWhatNestsTooDeep) {
  EXPECT_EQ(refusal("[[1]]", {.max_depth = 2}), "no error");
  EXPECT_EQ(refusal("[[[1]]]", {.max_depth = 2}),
            "dir/config.json: nested more than 2 levels deep");
  EXPECT_EQ(refusal(std::string(1'000'000, '[')),
            "dir/config.json: nested more than 64 levels deep");
}

// Each key would be looked for through all before it.
TEST(ParseJson, AnOrderedObjectHasSoManyKeys) {
  std::string text = "{\"a\": {";
  for (int i = 0; i < 40'000; ++i) text += fmt::format("{}\"{}\": 0", i > 0 ? "," : "", i);
  text += "}}";
  EXPECT_EQ(parse_json(text, "f").at("a").size(), 40'000U);
  try {
    parse_ordered_json(text, "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "f: an object of more than 32768 keys");
  }
}

TEST(ParseJson, KeepsMessagesShort) {
  EXPECT_LT(refusal("[" + std::string(100'000, 'x')).size(), 500U);
  EXPECT_LT(refusal("[\"" + std::string(100'000, 'x')).size(), 500U);
  const std::string key = "\"" + std::string(100'000, 'k') + "\": 1";
  EXPECT_LT(refusal("{" + key + ", " + key + "}").size(), 500U);
}

TEST(WholeNumber, TakesNothingThatACastWouldChange) {
  const auto text_of = [](const std::string& text, std::int64_t least, std::int64_t most) {
    const nlohmann::json value = parse_json(text, "f");
    try {
      const std::int64_t ordered = whole_number(parse_ordered_json(text, "f"), least, most);
      EXPECT_EQ(whole_number(value, least, most), ordered);
      return std::to_string(ordered);
    } catch (const nlohmann::json::exception& error) {
      EXPECT_THROW(whole_number(value, least, most), nlohmann::json::exception);
      return json_reason(error);
    }
  };
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(text_of("9223372036854775807", kLeast, kMost), "9223372036854775807");
  EXPECT_EQ(text_of("-9223372036854775808", kLeast, kMost), "-9223372036854775808");
  EXPECT_THAT(text_of("9223372036854775808", kLeast, kMost), HasSubstr("is not from"));
  EXPECT_THAT(text_of("18446744073709551615", kLeast, kMost), HasSubstr("is not from"));
  EXPECT_EQ(text_of("1", 1, 3), "1");
  EXPECT_EQ(text_of("3", 1, 3), "3");
  EXPECT_EQ(text_of("0", 1, 3), "0 is not from 1 to 3");
  EXPECT_EQ(text_of("4", 1, 3), "4 is not from 1 to 3");
  EXPECT_EQ(text_of("1e+122", kLeast, kMost), "1e+122 is no whole number");
  EXPECT_EQ(text_of("2.5", 1, 3), "2.5 is no whole number");
  EXPECT_EQ(text_of("\"2\"", 1, 3), "\"2\" is no whole number");
  EXPECT_EQ(text_of("null", 1, 3), "null is no whole number");
  EXPECT_EQ(whole_number<int>(parse_json("2147483647", "f")), 2147483647);
  EXPECT_THROW(whole_number<int>(parse_json("2147483648", "f")), nlohmann::json::exception);
}

TEST(JsonReason, LeavesOutTheLibrarysNumber) {
  try {
    (void)parse_json("{}", "f").at("x");
    FAIL();
  } catch (const nlohmann::json::exception& error) {
    EXPECT_EQ(json_reason(error), "key 'x' not found");
  }
}

}  // namespace
}  // namespace atl
