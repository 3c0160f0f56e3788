#include "atoll/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
