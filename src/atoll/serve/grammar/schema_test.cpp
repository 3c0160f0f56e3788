#include "atoll/serve/grammar/schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/serve/grammar/testing.h"

namespace atl::serve::grammar {
namespace {

using ::testing::HasSubstr;

// Which of `texts` the grammar of a schema has.
void expect(std::string_view schema, const std::vector<const char*>& good,
            const std::vector<const char*>& bad) {
  const Grammar grammar = schema_grammar(schema);
  for (const char* text : good) EXPECT_TRUE(testing::matches(grammar, text)) << schema << text;
  for (const char* text : bad) EXPECT_FALSE(testing::matches(grammar, text)) << schema << text;
}

std::string refused(std::string_view schema) {
  return testing::refusal({FormatRequest::kJsonSchema, std::string(schema)});
}

TEST(Schema, Types) {
  expect(R"({"type": "string"})", {R"("")", R"("aé\n\u00e9\ud83d\ude00")"},
         {"", "1", R"("\ud83d")", "\"\n\"", R"("\x")", "null"});
  expect(R"({"type": "integer"})", {"0", "-12", "-0"}, {"01", "1.0", "1e2", "", "-"});
  expect(R"({"type": "number"})", {"0", "-1.50", "1e5", "2.5E-10"}, {".5", "1.", "+1", "1e999"});
  expect(R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"0", "\"\""});
  expect("true", {"1", "{}", R"({"a": [1, {"b": null}]})"}, {"", "{a: 1}", "[1,]"});
  expect("{}", {"[]", "\"x\""}, {});
}

TEST(Schema, ObjectsHaveTheSchemasOrder) {
  constexpr const char* kSchema = R"({"type": "object", "required": ["b", "z"], "properties":
      {"a": {"type": "integer"}, "b": {"type": "null"}, "c": {"type": "boolean"}}})";
  expect(kSchema,
         {R"({"a":1,"b":null,"c":true,"z":[]})", R"({"b": null, "z": 1})",
          R"({"b":null,"c": false,"z":{}})"},
         {"{}", R"({"b":null})", R"({"z":1,"b":null})", R"({"b":null,"z":1,"y":2})",
          R"({"a":"1","b":null,"z":1})", R"({ "b":null,"z":1})", R"({"b":  null,"z":1})"});
  expect(R"({"properties": {"a": {}}, "additionalProperties": false})", {"{}", R"({"a":1})"},
         {R"({"b":1})", "1"});
  expect(R"({"properties": {"a": false, "b": {}}})", {"{}", R"({"b":1})"}, {R"({"a":1})"});
}

TEST(Schema, AdditionalPropertiesAreNotTheNamedOnes) {
  constexpr const char* kSchema = R"({"type": "object", "properties": {"ab": {"type": "null"},
      "é": {"type": "null"}}, "additionalProperties": {"type": "integer"}})";
  expect(kSchema, {"{}", R"({"a":1})", R"({"ab":null,"abc":1,"b":2})", R"({"é":null,"è":1,"":3})"},
         {R"({"ab":1})", R"({"\u0061b":1})", R"({"x":null})", R"({"é":1})"});
  expect(R"({"type": "object", "additionalProperties": {"type": "null"}, "maxProperties": 2,
      "minProperties": 1})",
         {R"({"a":null})", R"({"a":null, "b":null})"},
         {"{}", R"({"a":1})", R"({"a":null,"b":null,"c":null})"});
  expect(R"({"type": "object", "patternProperties": {"^x-": {"type": "integer"}}})",
         {"{}", R"({"x-a":1,"x-":2})"}, {R"({"y":1})", R"({"x-a":null})"});
  expect(R"({"type": "object", "patternProperties": {"^x": {"maximum": 5}},
      "properties": {"x1": {"type": "integer"}, "y": {"type": "integer"}}})",
         {R"({"x1":5,"y":6})"}, {R"({"x1":6})"});
}

TEST(Schema, Arrays) {
  expect(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
         {"[1]", "[1,2]", "[1, 2,3]"}, {"[]", "[1,2,3,4]", "[null]", "[1,]", "[ 1]"});
  expect(R"({"prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": {"type": "string"},
      "minItems": 1})",
         {"[null]", "[null,true]", R"([null,true,"a","b"])"}, {"[]", "[true]", "[null,true,1]"});
  expect(R"({"type": "array", "items": [{"type": "null"}], "additionalItems": false})",
         {"[]", "[null]"}, {"[null,null]"});
  expect(R"({"type": "array", "items": false})", {"[]"}, {"[1]"});
  expect(R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"});
  expect(R"({"type": "array", "maxItems": 1, "uniqueItems": true})", {"[1]"}, {"[1,2]"});
}

TEST(Schema, EnumAndConst) {
  expect(R"({"enum": ["a", "ab", 1, null, [1, {"x": 2}], "\"\n"]})",
         {R"("a")", R"("ab")", "1", "null", R"([1, {"x":2}])", R"("\"\n")"},
         {R"("b")", "2", R"([1])", R"("\u0061")"});
  expect(R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"});
  expect(R"({"const": {"a": 1}})", {R"({"a":1})", R"({"a": 1})"}, {"{}"});
}

TEST(Schema, LengthsCountCharacters) {
  expect(R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {R"("ab")", R"("éé")", R"("😀\ud83d\ude00a")", R"("\n\u0001")"},
         {R"("a")", R"("abcd")", R"("é")", R"("😀")"});
}

TEST(Schema, PatternsAreOfTheContent) {
  expect(R"({"type": "string", "pattern": "^a[\"\\\\b\n]+$"})", {R"("ab")", R"("a\"\\\n")"},
         {R"("a")", R"("xab")", R"("a\u0062")"});
  expect(R"({"type": "string", "pattern": "b+"})", {R"("abc")", R"("b")", R"("\n\"b")"},
         {R"("")", R"("ac")"});
  expect(R"({"type": "string", "pattern": "^[a-z]*$", "minLength": 1, "maxLength": 3})",
         {R"("a")", R"("abc")"}, {R"("")", R"("abcd")"});
}

TEST(Schema, Formats) {
  expect(R"({"type": "string", "format": "date"})", {R"("2024-02-28")", R"("1999-12-31")"},
         {R"("2024-02-30")", R"("2024-13-01")", R"("24-01-01")"});
  expect(R"({"type": "string", "format": "date-time"})", {R"("2024-01-01T23:59:59.5Z")"},
         {R"("2024-01-01")", R"("2024-01-01T24:00:00Z")"});
  expect(R"({"type": "string", "format": "time"})", {R"("12:00:00+01:00")"}, {R"("12:00:00")"});
  expect(R"({"type": "string", "format": "uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567")"});
  expect(R"({"type": "string", "format": "ipv4"})", {R"("255.0.10.1")"}, {R"("256.0.0.1")"});
  expect(R"({"type": "string", "format": "email"})", {R"("a.b@c-d.org")"},
         {R"("a@b")", R"("@b.c")"});
  expect(R"({"type": "string", "format": "uri"})", {R"("https://a.org:80/b?c=d#e")"}, {R"("a")"});
}

TEST(Schema, BoundsOfIntegers) {
  for (const auto& [low, high] : {std::pair(-12, 34),
                                  {0, 0},
                                  {5, 5},
                                  {-7, -3},
                                  {-100, -99},
                                  {98, 1002},
                                  {1, 9},
                                  {-1, 1},
                                  {17, 203}}) {
    const Grammar grammar = schema_grammar(
        fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", low, high));
    for (int i = -1100; i <= 1100; ++i) {
      ASSERT_EQ(testing::matches(grammar, std::to_string(i)), low <= i && i <= high)
          << low << " " << high << ": " << i;
    }
  }
  expect(R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6.5})", {"4", "5", "6"},
         {"3", "7", "04"});
  expect(R"({"type": "integer", "minimum": 3, "exclusiveMinimum": true})", {"4"}, {"3"});
  expect(R"({"type": "integer", "minimum": 0})", {"0", "123456789012"}, {"-1", "-0"});
  expect(R"({"type": "number", "multipleOf": 1, "maximum": -2})", {"-2", "-30"}, {"-1", "-2.5"});
}

TEST(Schema, BoundsOfNumbers) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "1"}, {"-1", "1"},   {"0.25", "3.5"}, {"-3.75", "-1.5"}, {"-0.5", "0.5"},
      {"1", "1"}, {"0", "0.05"}, {"99.9", "101"}, {"-2", "0"}};
  for (const auto& [low, high] : cases) {
    for (const bool is_strict : {false, true}) {
      if (is_strict && (std::string_view(low) == high || std::string_view(high) == "0.05"))
        continue;
      const Grammar grammar = schema_grammar(fmt::format(
          R"({{"type": "number", "{2}": {0}, "{3}": {1}}})", low, high,
          is_strict ? "exclusiveMinimum" : "minimum", is_strict ? "exclusiveMaximum" : "maximum"));
      int matched = 0;
      for (int i = -11000; i <= 11000; ++i) {
        const double value = i / 100.0;
        const std::string text = fmt::format("{}", value);
        const bool is_inside = is_strict ? std::stod(low) < value && value < std::stod(high)
                                         : std::stod(low) <= value && value <= std::stod(high);
        const bool has_other_sign = value == 0;  // 0 may be left out, or come as -0
        if (!has_other_sign) {
          ASSERT_EQ(testing::matches(grammar, text), is_inside)
              << low << " " << high << ": " << text;
        } else if (testing::matches(grammar, text)) {
          ASSERT_TRUE(is_inside) << low << " " << high;
        }
        matched += testing::matches(grammar, text) ? 1 : 0;
      }
      EXPECT_GT(matched, 0) << low << " " << high;
    }
  }
}

TEST(Schema, Combinations) {
  expect(R"({"anyOf": [{"type": "integer"}, {"type": "null"}]})", {"1", "null"}, {"true"});
  expect(R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
      "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":1})"}, {"{}"});
  expect(R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]})", {"3", "5"},
         {"2", "6"});
  expect(R"({"allOf": [{"properties": {"a": {"type": ["integer", "null"]}}, "required": ["a"]},
      {"properties": {"a": {"type": "number", "minimum": 2}, "b": {}}}], "type": "object"})",
         {R"({"a":2})", R"({"a":2,"b":1})"}, {R"({"a":1})", R"({"a":2.5})", "{}"});
  // The other part allows no b at all.
  expect(R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false},
      {"properties": {"b": {}}}], "type": "object"})",
         {R"({"a":2})", "{}"}, {R"({"b":1})"});
  expect(R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "x"}}, "required": ["k"]},
      {"type": "object", "properties": {"k": {"const": "y"}, "n": {}}, "required": ["k", "n"]}]})",
         {R"({"k":"x"})", R"({"k":"y","n":1})"}, {R"({"k":"y"})", R"({"k":"z"})"});
}

TEST(Schema, References) {
  expect(R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"},
      "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"]}},
      "$ref": "#/$defs/node"})",
         {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":null}})"},
         {R"({"v":1})", R"({"v":1,"next":{"v":2}})"});
  expect(R"({"definitions": {"a/b~c": {"type": "null"}}, "type": "array",
      "items": {"$ref": "#/definitions/a~1b~0c"}})",
         {"[null,null]"}, {"[1]"});
  expect(R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  expect(R"({"$defs": {"i": {"type": "integer"}}, "$ref": "#/$defs/i", "minimum": 5})", {"5"},
         {"4"});
}

TEST(Schema, RefusesByPointerAndName) {
  EXPECT_THAT(refused(R"({"properties": {"a/b": {"not": {}}}})"),
              HasSubstr("#/properties/a~1b/not: this keyword is not supported"));
  for (const char* keyword : {"if", "contains", "dependentRequired", "propertyNames"}) {
    EXPECT_THAT(refused(fmt::format(R"({{"{}": {{}}}})", keyword)), HasSubstr(keyword));
  }
  EXPECT_THAT(refused(R"({"type": "array", "uniqueItems": true})"), HasSubstr("uniqueItems"));
  EXPECT_THAT(refused(R"({"type": "number", "multipleOf": 0.1})"), HasSubstr("multipleOf"));
  EXPECT_THAT(refused(R"({"type": "string", "format": "regex"})"), HasSubstr("'regex'"));
  EXPECT_THAT(refused(R"({"type": "string", "pattern": "a*b*", "maxLength": 3})"),
              HasSubstr("#/maxLength"));
  EXPECT_THAT(refused(R"j({"type": "string", "pattern": "(?=a)"})j"), HasSubstr("#/pattern"));
  EXPECT_THAT(refused(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})"),
              HasSubstr("#/oneOf: alternatives 0 and 1"));
  EXPECT_THAT(refused(R"({"oneOf": [{"properties": {"k": {"const": 1}}, "required": ["k"]},
      {"properties": {"k": {"const": 2}}, "required": ["k"]}]})"),
              HasSubstr("oneOf"));  // neither is of objects alone: both hold for 3
  EXPECT_THAT(refused(R"({"$ref": "http://x.org/y"})"), HasSubstr("another document"));
  EXPECT_THAT(refused(R"({"$ref": "#/$defs/none"})"), HasSubstr("there is no"));
  EXPECT_THAT(refused(R"({"$ref": "#"})"), HasSubstr("no text has this form"));
  EXPECT_THAT(refused(R"({"allOf": [{"$ref": "#"}]})"), HasSubstr("circle"));
  EXPECT_THAT(refused(R"({"type": "text"})"), HasSubstr("#/type"));
  EXPECT_THAT(refused(R"({"type": "object", "minProperties": 2})"), HasSubstr("minProperties"));
  EXPECT_THAT(refused(R"({"enum": ["a"], "minLength": 3})"), HasSubstr("#/minLength"));
  EXPECT_THAT(refused(R"({"type": "string", "minLength": -1})"), HasSubstr("#/minLength"));
  EXPECT_THAT(refused(R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})"), HasSubstr("pattern"));
  EXPECT_THAT(refused("{\"a\": 1, \"a\": 2}"), HasSubstr("twice"));
  EXPECT_THAT(refused("["), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("1"), HasSubstr("a schema is an object"));
  EXPECT_THAT(refused("false"), HasSubstr("no text has this form"));
  EXPECT_THAT(refused(R"({"type": "object", "required": ["a"], "additionalProperties": false})"),
              HasSubstr("no text has this form"));
}

TEST(Schema, WhatWouldExplodeIsRefused) {
  std::string chain = R"({"$defs": {"a0": {"type": "integer"})";
  for (int i = 1; i < 40; ++i) {
    chain += fmt::format(
        R"(, "a{0}": {{"allOf": [{{"$ref": "#/$defs/a{1}"}}, {{"$ref": "#/$defs/a{1}"}}]}})", i,
        i - 1);
  }
  EXPECT_NE(refused(chain + R"(}, "$ref": "#/$defs/a39"})"), "");
  std::string deep = "true";
  for (int i = 0; i < 100; ++i) deep = R"({"items": )" + deep + "}";
  EXPECT_THAT(refused(deep), HasSubstr("too deep"));
  const std::string name(5000, 'n');
  EXPECT_THAT(refused(fmt::format(
                  R"({{"properties": {{"{}": {{}}}}, "additionalProperties": true}})", name)),
              HasSubstr("the most"));
  std::string prefix = R"({"minItems": 30000, "prefixItems": [true)";
  for (int i = 0; i < 30000; ++i) prefix += ",true";
  EXPECT_EQ(refused(prefix + "]}"), "");
}

}  // namespace
}  // namespace atl::serve::grammar
