#include "atoll/serve/api/tool_calls.h"

#include "atoll/serve/api/service_testing.h"

namespace atl::serve::api {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

const std::vector<std::string> kNames = {"weather", "time"};

// What a finder makes of a text that comes in pieces of `size` bytes: texts, and "name(arguments)".
std::string found(const std::string& text, std::size_t size, bool only_one = false) {
  ToolCallFinder finder(kNames, only_one);
  std::string seen;
  const auto add = [&seen](const AnswerPart& part) {
    seen += part.text;
    for (const ToolCall& call : part.calls) seen += "[" + call.name + call.arguments + "]";
  };
  for (std::size_t at = 0; at < text.size(); at += size) add(finder.push(text.substr(at, size)));
  add(finder.finish());
  return seen;
}

TEST(ToolCalls, AreFoundHoweverTheTextIsCut) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"No call at all.", "No call at all."},
      {R"(<tool_call>{"name":"time","arguments":{}}</tool_call>)", "[time{}]"},
      {R"(Let me see.<tool_call>{"name":"time","arguments":{"a":"}"}}</tool_call>)",
       R"(Let me see.[time{"a":"}"}])"},
      {"<tool_call>\n{\"name\":\"time\",\"arguments\":{}}\n</tool_call>\n"
       "<tool_call>{\"name\":\"weather\",\"arguments\":{\"b\":1,\"a\":2}}</tool_call>",
       R"([time{}][weather{"b":1,"a":2}])"},
      {R"({"name":"time","parameters":{"zone":"UTC"}})", R"([time{"zone":"UTC"}])"},
      {R"(  {"name":"time"})", "[time{}]"},
      {R"({"name":"other","parameters":{}})", R"({"name":"other","parameters":{}})"},
      {R"({"name":"time","parameters":5})", R"({"name":"time","parameters":5})"},
      {R"({"answer":42} and more)", R"({"answer":42} and more)"},
      {"<tool_call>nonsense</tool_call>!", "<tool_call>nonsense</tool_call>!"},
      {R"(<tool_call>{"name":"time","arguments":{}})", "[time{}]"},
      {"a <tool", "a <tool"},
      {"<tool_call>{\"name\":", "<tool_call>{\"name\":"},
      {R"(see {"name":"time"})", R"(see {"name":"time"})"},
  };
  for (const auto& [text, expected] : cases) {
    for (std::size_t size = 1; size <= text.size(); ++size) {
      EXPECT_EQ(found(text, size), expected) << "pieces of " << size;
    }
  }
}

TEST(ToolCalls, OneMayBeEnough) {
  const std::string call = R"(<tool_call>{"name":"time","arguments":{}}</tool_call>)";
  for (std::size_t size : {1, 7, 1000}) EXPECT_EQ(found(call + call, size, true), "[time{}]");
}

class ServeTools : public ServiceTest {
 protected:
  const ordered_json tools_ = {
      {{"type", "function"},
       {"function", {{"name", "time"}, {"parameters", {{"type", "object"}}}}}}};
};

TEST_F(ServeTools, ACallIsPartOfTheMessage) {
  says_ = R"(<tool_call>{"name":"time","arguments":{"zone":"UTC"}}</tool_call>)";
  const HttpAnswer answer = chat({{"tools", tools_}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  const ordered_json choice = answer.json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  const ordered_json& call = choice["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "time");
  EXPECT_EQ(call["function"]["arguments"], R"({"zone":"UTC"})");
  EXPECT_FALSE(call["id"].get<std::string>().empty());
  const std::vector<GenerationRequest> seen = generator_.take_requests();
  EXPECT_THAT(tokenizer_.decode(seen.at(0).prompt), HasSubstr(R"("name": "time")"));
}

TEST_F(ServeTools, AStreamHasTheSameCalls) {
  says_ =
      "Now: <tool_call>{\"name\":\"time\",\"arguments\":{\"zone\":\"UTC\"}}</tool_call>\n"
      "<tool_call>{\"name\":\"time\",\"arguments\":{}}</tool_call>";
  std::string text;
  ordered_json calls = ordered_json::array();
  std::string finish;
  for (const ordered_json& chunk : chunks(chat({{"tools", tools_}, {"stream", true}}))) {
    const ordered_json& choice = chunk["choices"][0];
    text += choice["delta"].value("content", "");
    if (choice["delta"].contains("tool_calls")) {
      for (const ordered_json& call : choice["delta"]["tool_calls"]) calls.push_back(call);
    }
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
  }
  EXPECT_EQ(text, "Now: ");
  EXPECT_EQ(finish, "tool_calls");
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["index"], 0);
  EXPECT_EQ(calls[0]["function"]["arguments"], R"({"zone":"UTC"})");
  EXPECT_EQ(calls[1]["index"], 1);
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST_F(ServeTools, NoneAreShownOrReadWhereNoneAreWanted) {
  says_ = R"(<tool_call>{"name":"time","arguments":{}}</tool_call>)";
  const HttpAnswer answer = chat({{"tools", tools_}, {"tool_choice", "none"}});
  EXPECT_EQ(answer.json()["choices"][0]["message"]["content"], says_);
  EXPECT_EQ(generator_.take_requests().at(0).prompt, tokens("<user>Hi<assistant>"));
}

TEST_F(ServeTools, OneCallEndsAnAnswerThatMayHaveOne) {
  says_ = R"(<tool_call>{"name":"time","arguments":{}}</tool_call> and so on)";
  const ordered_json answer = chat({{"tools", tools_}, {"parallel_tool_calls", false}}).json();
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(answer["usage"]["completion_tokens"], says_.find(" and"));
}

// A form that nothing is held to.
class AnyToken : public TokenConstraint {
 public:
  void mask(std::span<std::uint64_t> /*allowed*/) override {}
  void accept(std::int32_t /*token*/) override {}
  bool is_over() const override { return false; }
};

TEST_F(ServeTools, AForcedCallIsTheFormOfTheAnswer) {
  std::vector<FormatRequest> seen;
  ServedModel served = model();
  served.tool_calls = {.is_tagged = true};
  served.make_constraint = [&seen](const FormatRequest& format, std::span<const std::int32_t>) {
    seen.push_back(format);
    return std::make_unique<AnyToken>();
  };
  service_ = std::make_unique<Service>(options_);
  service_->serve(std::move(served));
  ordered_json tools = tools_;
  tools.push_back({{"type", "function"}, {"function", {{"name", "say"}}}});
  says_ = R"(<tool_call>{"name":"say","arguments":{}}</tool_call>)";

  EXPECT_EQ(chat({{"tools", tools}, {"tool_choice", "required"}}).status, 200);
  const ordered_json say = {{"type", "function"}, {"function", {{"name", "say"}}}};
  const HttpAnswer one = chat({{"tools", tools}, {"tool_choice", say}});
  EXPECT_EQ(one.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "say");
  EXPECT_EQ(chat({{"tools", tools}, {"tool_choice", "auto"}}).status, 200);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].kind, FormatRequest::kToolCall);
  EXPECT_EQ(ordered_json::parse(seen[0].text),
            ordered_json::parse(R"({"tagged":true,"arguments":"arguments","max_calls":128,"tools":
                [{"name":"time","parameters":{"type":"object"}},{"name":"say"}]})"));
  EXPECT_EQ(ordered_json::parse(seen[1].text),
            ordered_json::parse(R"({"tagged":true,"arguments":"arguments","max_calls":1,"tools":
                [{"name":"say"}]})"));
}

TEST_F(ServeTools, AForcedCallThatCannotBeIsRefused) {
  const ordered_json other = {{"type", "function"}, {"function", {{"name", "other"}}}};
  for (const ordered_json& fields : std::vector<ordered_json>{
           {{"tool_choice", "required"}},
           {{"tools", tools_}, {"tool_choice", other}},
           {{"tools", tools_}, {"tool_choice", "required"}, {"regex", "a"}}}) {
    const HttpAnswer answer = chat(fields);
    EXPECT_EQ(answer.status, 400) << fields;
    EXPECT_EQ(answer.json()["error"]["param"], "tool_choice") << answer.body;
  }
}

TEST_F(ServeTools, CallsOfTheConversationAreObjectsForTheTemplate) {
  ServedModel served = model();
  served.chat = ChatTemplate::from_text(
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments.zone }}"
      "{% endfor %}{% endfor %}",
      "", "", "test");
  service_ = std::make_unique<Service>(options_);
  service_->serve(std::move(served));
  const ordered_json call = {{"id", "call_1"},
                             {"type", "function"},
                             {"function", {{"name", "time"}, {"arguments", R"({"zone":"UTC"})"}}}};
  const ordered_json message = {
      {"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}};
  ASSERT_EQ(chat({{"messages", {message}}}).status, 200);
  EXPECT_EQ(generator_.take_requests().at(0).prompt, tokens("UTC"));
}

}  // namespace
}  // namespace atl::serve::api
