#include "atoll/serve/grammar/tool_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/serve/grammar/testing.h"

namespace atl::serve::grammar {
namespace {

using ::testing::HasSubstr;

void expect(std::string_view request, const std::vector<const char*>& good,
            const std::vector<const char*>& bad) {
  const Grammar grammar = tool_call_grammar(request);
  for (const char* text : good) EXPECT_TRUE(testing::matches(grammar, text)) << request << text;
  for (const char* text : bad) EXPECT_FALSE(testing::matches(grammar, text)) << request << text;
}

TEST(ToolCallGrammar, OneBareCall) {
  expect(R"({"tagged": false, "arguments": "parameters", "max_calls": 1, "tools": [
            {"name": "time"},
            {"name": "add", "parameters": {"type": "object", "required": ["a"],
             "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}},
            {"name": "say", "parameters": {"type": "object", "required": ["a"],
             "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}}}]})",
         {R"({"name": "time", "parameters": {}})", R"({"name": "add", "parameters": {"a":5}})",
          R"({"name": "say", "parameters": {"a": null}})"},
         {"", R"({"name": "time", "arguments": {}})", R"({"name": "time", "parameters": {"a":5}})",
          R"({"name": "add", "parameters": {}})", R"({"name": "add", "parameters": {"a":null}})",
          R"({"name": "other", "parameters": {}})",
          R"({"name": "time", "parameters": {}}{"name": "time", "parameters": {}})",
          "<tool_call>\n{\"name\": \"time\", \"parameters\": {}}\n</tool_call>"});
}

TEST(ToolCallGrammar, TaggedCallsMayBeSeveral) {
  constexpr const char* kCall = "<tool_call>\n{\"name\": \"t\", \"arguments\": {}}\n</tool_call>";
  const std::string two = std::string(kCall) + "\n" + kCall;
  const std::string three = two + "\n" + kCall;
  expect(R"({"tagged": true, "arguments": "arguments", "max_calls": 1, "tools": [{"name": "t"}]})",
         {kCall}, {"", R"({"name": "t", "arguments": {}})", two.c_str()});
  expect(R"({"tagged": true, "arguments": "arguments", "max_calls": 2, "tools": [{"name": "t"}]})",
         {kCall, two.c_str()}, {"", three.c_str()});
}

TEST(ToolCallGrammar, NamesAreWrittenAsJson) {
  expect(R"({"tagged": false, "arguments": "arguments", "max_calls": 1,
             "tools": [{"name": "a\"b"}]})",
         {R"({"name": "a\"b", "arguments": {}})"}, {R"({"name": "a"b", "arguments": {}})"});
}

TEST(ToolCallGrammar, ARefusalNamesTheTool) {
  const std::string refusal =
      testing::refusal({FormatRequest::kToolCall,
                        R"({"tagged": false, "arguments": "arguments", "max_calls": 1, "tools": [
           {"name": "t", "parameters": {"properties": {"a": {"not": {}}}}}]})"});
  EXPECT_THAT(refusal, HasSubstr(R"(the parameters of the tool "t": JSON schema, #/properties/a)"));
}

}  // namespace
}  // namespace atl::serve::grammar
