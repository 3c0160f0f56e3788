#include "atoll/data/jsonl/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "atoll/data/testing.h"

namespace atl::data {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

std::vector<JsonlLine> lines(std::string_view content) {
  std::vector<JsonlLine> all;
  for_each_jsonl_line(content, "d.jsonl", [&](const JsonlLine& line) { all.push_back(line); });
  return all;
}

std::string error(std::string_view content) {
  return error_of([&] { lines(content); });
}

TEST(Jsonl, ReadsEveryKindOfLine) {
  const std::string content =
      "\xEF\xBB\xBF{\"text\": \"a\\n\\u00e9\", \"id\": 3}\r\n"
      "\n  \n"
      "{\"completion\": \" yes\", \"prompt\": \"ok?\"}\n"
      "{\"messages\": [ {\"role\": \"user\", \"content\": \"hi\"} ], \"tools\": null}";
  const std::vector<JsonlLine> all = lines(content);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].kind, JsonlKind::kText);
  EXPECT_EQ(all[0].text, "a\n\xC3\xA9");
  EXPECT_EQ(all[0].number, 1);
  EXPECT_EQ(all[1].kind, JsonlKind::kCompletion);
  EXPECT_EQ(all[1].text, "ok? yes");
  EXPECT_EQ(all[1].completion, 3U);
  EXPECT_EQ(all[1].number, 4);
  EXPECT_EQ(all[2].kind, JsonlKind::kMessages);
  EXPECT_EQ(all[2].text, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(all[2].end, content.size());
}

std::vector<JsonlLine> lines_of(std::string_view content, const Fields& fields) {
  std::vector<JsonlLine> all;
  const auto keep = [&](const JsonlLine& line) { all.push_back(line); };
  for_each_jsonl_line(content, "d.jsonl", keep, fields);
  return all;
}

TEST(Jsonl, KeysCanHaveOtherNames) {
  Fields fields;
  set_field(fields, "prompt=question", "--field");
  set_field(fields, "completion=answer", "--field");
  const auto all =
      lines_of(R"({"question": "2+2?", "answer": " 4", "prompt": "not looked at"})", fields);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].kind, JsonlKind::kCompletion);
  EXPECT_EQ(all[0].text, "2+2? 4");
  EXPECT_EQ(all[0].completion, 4U);
  EXPECT_THAT(error_of([&] { lines_of(R"({"question": "2+2?"})", fields); }),
              HasSubstr("d.jsonl line 1 has a \"question\" and no \"answer\""));
  EXPECT_THAT(
      error_of([&] { lines_of(R"({"question": "a", "question": "b", "answer": ""})", fields); }),
      HasSubstr("has \"question\" twice"));
}

TEST(Jsonl, AFieldCanBeATextOfSeveralKeys) {
  Fields fields;
  fields.prompt = "{{Q}} {question}\nin {unit}: ";
  fields.completion = "{answer}";
  const std::string line = R"({"question": "2+2?", "answer": "4", "unit": 7})";
  EXPECT_EQ(lines_of(line, fields)[0].text, "{Q} 2+2?\nin 7: 4");
  EXPECT_THAT(error_of([&] { lines_of(R"({"question": "2+2?", "answer": "4"})", fields); }),
              HasSubstr("has no \"unit\""));
  EXPECT_THAT(
      error_of([&] { lines_of(R"({"question": [], "answer": "4", "unit": "m"})", fields); }),
      HasSubstr("has a \"question\" that is not a string"));
}

TEST(Jsonl, PromptsCanBeConversations) {
  Fields fields;
  fields.chat = true;
  const auto all = lines_of(R"({"prompt": "say \"hi\"", "completion": "hi"})", fields);
  EXPECT_EQ(all[0].kind, JsonlKind::kMessages);
  EXPECT_EQ(all[0].text,
            R"([{"content":"say \"hi\"","role":"user"},{"content":"hi","role":"assistant"}])");
}

TEST(Jsonl, ReadsWhatShareGptWrites) {
  Fields fields;
  fields.messages = "conversations";
  fields.role = "from";
  fields.content = "value";
  const std::string line =
      R"({"id": "x", "conversations": [{"from": "system", "value": "s"},)"
      R"({"from": "human", "value": "h", "weight": 1}, {"from": "gpt", "value": "g"}]})";
  EXPECT_EQ(lines_of(line, fields)[0].text,
            R"([{"role":"system","content":"s"},{"role":"user","content":"h","weight":1},)"
            R"({"role":"assistant","content":"g"}])");
  fields.roles = {"human=prompter"};
  EXPECT_THAT(lines_of(line, fields)[0].text, AllOf(HasSubstr("prompter"), HasSubstr("\"gpt\"")));
  EXPECT_THAT(error_of([&] { lines_of(R"({"conversations": [{"value": "g"}]})", fields); }),
              HasSubstr("d.jsonl line 1: message 0 has no text \"from\""));
  EXPECT_THAT(error_of([&] { lines_of(R"({"conversations": [{"from": "gpt"}]})", fields); }),
              HasSubstr("no text \"value\""));
}

TEST(Jsonl, RowsOfAlpacaAreReadAsThatIs) {
  const std::string line = R"({"instruction": "Add.", "input": "2 2", "output": "4"})";
  const std::string bare = R"({"instruction": "Hi", "input": "", "output": "Hey", "id": 1})";
  const auto all = lines(line + "\n" + bare);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].kind, JsonlKind::kCompletion);
  EXPECT_EQ(all[0].text.substr(all[0].completion), "4");
  EXPECT_THAT(all[0].text, HasSubstr("provides further context. Write a response that"));
  EXPECT_THAT(all[0].text,
              HasSubstr("### Instruction:\nAdd.\n\n### Input:\n2 2\n\n### Response:\n4"));
  EXPECT_THAT(all[1].text, ::testing::EndsWith("### Instruction:\nHi\n\n### Response:\nHey"));
  EXPECT_THAT(all[1].text, ::testing::Not(HasSubstr("Input")));
  EXPECT_THAT(all[0].mapping, ::testing::StartsWith("Alpaca"));

  Fields chat;
  chat.chat = true;
  EXPECT_EQ(lines_of(line, chat)[0].text,
            R"([{"role":"user","content":"Add.\n\n2 2"},{"role":"assistant","content":"4"}])");
  EXPECT_EQ(lines_of(R"({"system": "S", "instruction": "Hi", "output": "Hey"})", chat)[0].text,
            R"([{"role":"system","content":"S"},{"role":"user","content":"Hi"},)"
            R"({"role":"assistant","content":"Hey"}])");
  EXPECT_THAT(error(R"({"system": "S", "instruction": "Hi", "output": "Hey"})"),
              AllOf(HasSubstr("d.jsonl line 1 has \"system\""), HasSubstr("--chat")));
  EXPECT_THAT(error(R"({"history": [["a", "b"]], "instruction": "Hi", "output": "Hey"})"),
              AllOf(HasSubstr("\"history\""), HasSubstr("--chat")));
  EXPECT_EQ(
      lines_of(R"({"history": [["a", "b"]], "instruction": "Hi", "output": "Hey"})", chat)[0].text,
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
      R"({"role":"user","content":"Hi"},{"role":"assistant","content":"Hey"}])");
  EXPECT_THAT(error_of([&] {
                lines_of(R"({"history": ["a"], "instruction": "Hi", "output": "Hey"})", chat);
              }),
              HasSubstr("no list of pairs"));
  EXPECT_THAT(error(R"({"input": 5, "instruction": "Hi", "output": "Hey"})"),
              HasSubstr("\"input\" that is not a string"));
}

TEST(Jsonl, RowsOfShareGptAreReadAsThatIs) {
  const std::string turns = R"([{"from": "human", "value": "h"}, {"from": "gpt", "value": "g"},)"
                            R"( {"from": "observation", "value": "o", "weight": 0}])";
  const std::string expected = R"([{"role":"user","content":"h"},)"
                               R"({"role":"assistant","content":"g"},)"
                               R"({"role":"tool","content":"o","weight":0}])";
  for (const char* key : {"conversations", "messages"}) {
    const auto all = lines(fmt::format("{{\"id\": 1, \"{}\": {}}}", key, turns));
    EXPECT_EQ(all[0].kind, JsonlKind::kMessages);
    EXPECT_EQ(all[0].text, expected) << key;
    EXPECT_THAT(all[0].mapping, ::testing::StartsWith("ShareGPT"));
  }
  EXPECT_EQ(lines(R"({"conversations": [{"role": "user", "content": "h"}]})")[0].text,
            R"([{"role":"user","content":"h"}])");
  EXPECT_EQ(lines(R"({"system": "s", "conversations": [{"from": "human", "value": "h"}]})")[0].text,
            R"([{"role":"system","content":"s"},{"role":"user","content":"h"}])");
  const auto turn = [](const char* from, const char* value) {
    return fmt::format(R"({{"conversations": [{{"from": "human", "value": "h"}}, )"
                       R"({{"from": "{}", "value": "{}"}}]}})",
                       from, value);
  };
  EXPECT_EQ(lines(turn("function_call", R"({\"name\": \"f\", \"arguments\": {\"x\": 1}})"))[0].text,
            R"([{"role":"user","content":"h"},{"role":"assistant","content":"","tool_calls":)"
            R"([{"type":"function","function":{"name":"f","arguments":{"x":1}}}]}])");
  for (const char* from : {"function_call", "narrator"}) {
    EXPECT_THAT(error(turn(from, "f")),
                AllOf(HasSubstr(fmt::format("d.jsonl line 1 has a message from \"{}\"", from)),
                      HasSubstr(fmt::format("--field roles={}=assistant", from))));
  }
}

TEST(Jsonl, NamesTheKeysOfRowsThatItDoesNotKnow) {
  EXPECT_THAT(error(R"({"question": "2+2?", "answer": "4"})"),
              AllOf(HasSubstr("its keys are question, answer"),
                    HasSubstr("--field prompt=question --field completion=answer")));
  EXPECT_THAT(error(R"({"prompt": "2+2?", "response": "4"})"),
              HasSubstr("--field prompt=prompt --field completion=response"));
  EXPECT_THAT(error(R"({"content": "words", "n": 1})"), HasSubstr("--field text=content"));
  EXPECT_THAT(error(R"({"a": 1, "b": 2})"), HasSubstr("its keys are a, b; --field FIELD=KEY"));
}

TEST(Jsonl, VariablesOfATemplateComeWithTheirMessages) {
  const auto all = lines(R"({"messages": [], "chat_template_kwargs": {"enable_thinking": false}})"
                         "\n"
                         R"({"messages": [], "tools": [], "functions": null})");
  EXPECT_EQ(all[0].variables, R"({"enable_thinking":false})");
  EXPECT_EQ(all[1].variables, "");
  EXPECT_THAT(error(R"({"messages": [], "chat_template_kwargs": [1]})"), HasSubstr("no object"));
  EXPECT_THAT(error(R"({"text": "a", "chat_template_kwargs": {"a": 1}})"),
              HasSubstr("and no messages"));
}

TEST(Jsonl, ToolsGoToTheTemplate) {
  const auto variables = [](std::string_view beside) {
    return lines(fmt::format("{{\"messages\": [], {}}}", beside))[0].variables;
  };
  const std::string tools = R"({"tools":[{"name":"f"}]})";
  EXPECT_EQ(variables(R"("tools": [{"name": "f"}])"), tools);
  EXPECT_EQ(variables(R"("tools": "[{\"name\": \"f\"}]")"), tools);
  EXPECT_EQ(variables(R"("tools": ["{\"name\": \"f\"}"])"), tools);
  EXPECT_EQ(variables(R"("functions": [{"name": "f"}])"),
            R"({"tools":[{"type":"function","function":{"name":"f"}}]})");
  EXPECT_EQ(variables(R"("functions": [{"type": "function", "function": {"name": "f"}}])"),
            R"({"tools":[{"type":"function","function":{"name":"f"}}]})");
  EXPECT_EQ(variables(R"("chat_template_kwargs": {"b": 1}, "tools": [{"name": "f"}])"),
            R"({"b":1,"tools":[{"name":"f"}]})");
  for (const char* none : {R"("tools": "")", R"("tools": " ")", R"("tools": "[]")",
                           R"("tools": "null")", R"("functions": [])"}) {
    EXPECT_EQ(variables(none), "") << none;
  }
  const auto refusal = [](std::string_view beside) {
    return error(fmt::format("{{\"messages\": [], {}}}", beside));
  };
  EXPECT_THAT(refusal(R"("tools": [1])"), HasSubstr("hold something else than an object"));
  EXPECT_THAT(refusal(R"("tools": {"name": "f"})"), HasSubstr("d.jsonl line 1 has \"tools\""));
  EXPECT_THAT(refusal(R"("tools": "f of x")"), HasSubstr("are text and no JSON"));
  EXPECT_THAT(refusal(R"("tools": ["f"])"), HasSubstr("a text that is no JSON"));
  EXPECT_THAT(refusal(R"("tools": [{"a": 1}], "functions": [{"a": 1}])"), HasSubstr("remove one"));
  EXPECT_THAT(refusal(R"("tools": [{}], "chat_template_kwargs": {"tools": []})"),
              HasSubstr("twice"));
  // A text is what it is, whatever stands beside it.
  EXPECT_EQ(lines(R"({"text": "a", "tools": [{"name": "f"}]})")[0].text, "a");
}

TEST(Jsonl, ConversationsMayHaveTheirFirstQuestionBesideThem) {
  const auto all = lines(R"({"prompt": "hi", "messages": [{"role": "user", "content": "hi"}]})");
  EXPECT_EQ(all[0].text, R"([{"role":"user","content":"hi"}])");
  EXPECT_THAT(all[0].mapping, HasSubstr("\"prompt\" is not"));
  EXPECT_THAT(error(R"({"prompt": "a", "completion": "b", "messages": []})"),
              AllOf(HasSubstr("more than one kind"), HasSubstr("del(.")));
}

TEST(Jsonl, PromptAndCompletionMayBeMessages) {
  const auto all = lines(
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
      R"( {"role": "user", "content": "c"}], "completion": [{"role": "assistant",)"
      R"( "content": "d"}], "tools": [{"name": "f"}]})");
  EXPECT_EQ(all[0].kind, JsonlKind::kMessages);
  EXPECT_EQ(all[0].text, R"([{"role":"user","content":"a"},)"
                         R"({"role":"assistant","content":"b","train":false},)"
                         R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}])");
  EXPECT_EQ(all[0].variables, R"({"tools":[{"name":"f"}]})");
  EXPECT_EQ(lines(R"({"prompt": [{"from": "human", "value": "a"}], "completion": "d"})")[0].text,
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"d"}])");
  EXPECT_THAT(error(R"({"prompt": [{"role": "user", "content": "a"}], "completion": 5})"),
              HasSubstr("a completion that is neither a text nor a list"));
}

TEST(Jsonl, UnusedKeysMayHoldWhatOnlyPythonReads) {
  for (const char* odd :
       {"NaN", "Infinity", "-Infinity", "123456789012345678901234567890", "-9223372036854775809",
        "1e999", R"("\ud83d")", R"(["\udc00 \ud83d\ude00", {"\ud800": NaN}])"}) {
    const auto all =
        lines(fmt::format(R"({{"odd": {}, "text": "a \ud83d\ude00 1e999 NaN"}})", odd));
    ASSERT_EQ(all.size(), 1U) << odd;
    EXPECT_EQ(all[0].text, "a \xF0\x9F\x98\x80 1e999 NaN") << odd;
  }
  EXPECT_THAT(error(R"({"text": "a\ud83d"})"),
              AllOf(HasSubstr("d.jsonl line 1 holds \\ud83d"), HasSubstr("surrogate pair")));
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": "a", "n": NaN}]})"),
              HasSubstr("holds NaN"));
  EXPECT_THAT(error(R"({"messages": [], "tools": [{"default": 123456789012345678901}]})"),
              HasSubstr("more than 64 bits"));
  EXPECT_THAT(error(R"({"odd": nan, "text": "a"})"), HasSubstr("is not JSON"));
  EXPECT_THAT(error(R"({"odd": NaN, "text": "a")"), HasSubstr("is not JSON"));
}

TEST(Fields, ThatAreMalformedAreNamed) {
  const auto refusal = [](const char* assignment) {
    Fields fields;
    return error_of([&] { set_field(fields, assignment, "--field"); });
  };
  for (const char* wrong : {"prompt", "=a", "question=prompt", "", "promt=a"}) {
    EXPECT_THAT(refusal(wrong), HasSubstr("give FIELD=KEY")) << wrong;
  }
  for (const char* wrong :
       {"prompt={", "prompt=a}", "prompt={}", "prompt={a{b}}", "prompt={{a}}"}) {
    EXPECT_THAT(refusal(wrong), HasSubstr("--field prompt is ")) << wrong;
  }
  EXPECT_THAT(refusal("prompt="), HasSubstr("is empty"));
  EXPECT_THAT(refusal("messages={a}"), HasSubstr("it is one key"));
  for (const char* wrong : {"roles=a", "roles==a", "roles=a="}) {
    EXPECT_THAT(refusal(wrong), HasSubstr("human=user")) << wrong;
  }
}

TEST(Jsonl, NamesFileAndLineOfWhatIsWrong) {
  const std::string good = "{\"text\": \"a\"}\n";
  EXPECT_THAT(error(good + "{\"text\": }"), HasSubstr("d.jsonl line 2 is not JSON"));
  EXPECT_THAT(error("{\"text\": \"a\"} {}"), HasSubstr("line 1 is not JSON"));
  EXPECT_THAT(error("{\"text\": \"\xFF\"}"), HasSubstr("line 1 is not UTF-8"));
  EXPECT_THAT(error("[1]"), AllOf(HasSubstr("is not an object"), HasSubstr("jq -c '.[]'")));
  EXPECT_THAT(error("{\n  \"text\": \"a\"\n}"),
              AllOf(HasSubstr("line 1 is not JSON by itself"), HasSubstr("jq -c . d.jsonl")));
  EXPECT_THAT(error("{\"text\":\n \"a\"}"), HasSubstr("line 1 is not JSON"));
  EXPECT_THAT(error("{}"), HasSubstr("has neither"));
  EXPECT_THAT(error("{\"text\": 3}"), HasSubstr("\"text\" that is not a string"));
  EXPECT_THAT(error("{\"prompt\": \"a\"}"), HasSubstr("no \"completion\""));
  EXPECT_THAT(error("{\"completion\": \"a\"}"), HasSubstr("no \"prompt\""));
  EXPECT_THAT(error("{\"messages\": {}}"), HasSubstr("not an array"));
  EXPECT_THAT(error("{\"text\": \"a\", \"messages\": []}"), HasSubstr("more than one kind"));
  EXPECT_THAT(error("{\"text\": \"a\", \"text\": \"b\"}"), HasSubstr("\"text\" twice"));
  EXPECT_THAT(error("{\"text\": null}"), HasSubstr("has neither"));
  const std::string deep(100000, '[');
  EXPECT_THAT(error("{\"messages\": " + deep), HasSubstr("line 1 is not JSON"));
}

TEST(Jsonl, AKeyThatIsNullIsAbsent) {
  const std::vector<JsonlLine> all =
      lines(R"({"text": null, "prompt": "a", "completion": "b", "messages": null})");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].kind, JsonlKind::kCompletion);
  EXPECT_EQ(all[0].text, "ab");
}

TEST(Jsonl, TruncationAnywhereIsAnErrorOrABlankLine) {
  const std::string line = R"({"messages": [{"role": "user", "content": "h\u00e9"}], "n": 1.5})";
  for (std::size_t size = 1; size < line.size(); ++size) {
    EXPECT_THAT(error(line.substr(0, size)), HasSubstr("line 1")) << size;
  }
}

}  // namespace
}  // namespace atl::data
