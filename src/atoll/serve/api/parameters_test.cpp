// Each field: what is wrong is refused by name, and what changes nothing is taken.

#include "atoll/serve/api/service_testing.h"

namespace atl::serve::api {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

// A field with a value that is refused.
struct Wrong {
  const char* name;
  const char* value;  // JSON
  const char* code;
};

constexpr const char* kType = "invalid_type";
constexpr const char* kValue = "invalid_value";
constexpr const char* kUnsupported = "unsupported_parameter";

const std::vector<Wrong> kWrongEverywhere = {
    {"model", "5", kType},
    {"n", "0", kValue},
    {"n", "129", kValue},
    {"n", "1.5", kType},
    {"stop", "5", kType},
    {"stop", R"(["a","b","c","d","e"])", kValue},
    {"stop", R"([""])", kValue},
    {"stop", R"(["a",5])", kType},
    {"stop_token_ids", R"("a")", kType},
    {"stop_token_ids", "[-1]", kType},
    {"stop_token_ids", "[5000]", kValue},
    {"ignore_eos", "1", kType},
    {"stream", "\"yes\"", kType},
    {"stream_options", "true", kType},
    {"return_token_ids", "1", kType},
    {"cache_salt", "5", kType},
    {"temperature", "\"hot\"", kType},
    {"temperature", "-0.1", kValue},
    {"temperature", "2.1", kValue},
    {"top_p", "0", kValue},
    {"top_p", "1.1", kValue},
    {"top_p", "[]", kType},
    {"top_k", "-2", kValue},
    {"top_k", "1.5", kType},
    {"min_p", "-0.1", kValue},
    {"min_p", "1.1", kValue},
    {"seed", "1.5", kType},
    {"seed", "\"a\"", kType},
    {"logit_bias", "[]", kType},
    {"logit_bias", R"({"a":1})", kValue},
    {"logit_bias", R"({"1":101})", kValue},
    {"logit_bias", R"({"1":"x"})", kValue},
    {"logit_bias", R"({"7":1,"07":1})", kValue},
    {"logit_bias", R"({"5000":1})", kValue},
    {"presence_penalty", "2.1", kValue},
    {"frequency_penalty", "-2.1", kValue},
    {"repetition_penalty", "0", kValue},
    {"repetition_penalty", "1e-40", kValue},
    {"repetition_penalty", "11", kValue},
    {"response_format", "5", kType},
    {"response_format", R"({"type":"json_object"})", kUnsupported},
    {"grammar", "5", kType},
    {"grammar", R"("root ::= \"a\"")", kUnsupported},
    {"regex", "5", kType},
    {"regex", R"("a+")", kUnsupported},
    {"max_tokens", "-1", kValue},
    {"max_tokens", "\"5\"", kType},
    {"max_tokens", "1e3", kType},
    {"nonsense", "1", "unknown_parameter"},
};

const std::vector<Wrong> kWrongCompletions = {
    {"prompt", "5", kType},
    {"prompt", "[]", kType},
    {"prompt", R"([{"a":1}])", kType},
    {"prompt", "[1,-2]", kType},
    {"prompt", "[1,1.5]", kType},
    {"prompt", "[5000]", kValue},
    {"prompt", "[[]]", kValue},
    {"prompt", "null", "missing_required_parameter"},
    {"logprobs", "true", kType},
    {"logprobs", "21", kValue},
    {"echo", "1", kType},
    {"best_of", "2", kUnsupported},
    {"suffix", "\"end\"", kUnsupported},
    {"messages", "[]", "unknown_parameter"},
};

const std::vector<Wrong> kWrongChats = {
    {"messages", "5", kType},
    {"messages", "[]", kValue},
    {"messages", R"([{"content":"a"}])", kValue},
    {"messages", R"(["a"])", kValue},
    {"messages", "null", "missing_required_parameter"},
    {"max_tokens", "0", kValue},
    {"max_completion_tokens", "0", kValue},
    {"max_completion_tokens", "\"1\"", kType},
    {"logprobs", "1", kType},
    {"top_logprobs", "2", kValue},
    {"top_logprobs", "21", kValue},
    {"tools", "5", kType},
    {"tool_choice", "5", kValue},
    {"tool_choice", "\"required\"", kValue},
    {"tool_choice", R"({"type":"function"})", kValue},
    {"tool_choice", R"({"type":"function","function":{"name":"time"}})", kValue},
    {"reasoning_format", "\"hidden\"", kValue},
    {"parallel_tool_calls", "5", kType},
    {"chat_template_kwargs", "5", kType},
    {"functions", "[]", kUnsupported},
    {"function_call", "\"auto\"", kUnsupported},
    {"modalities", R"(["audio"])", kUnsupported},
    {"audio", "{}", kUnsupported},
    {"prediction", "{}", kUnsupported},
    {"web_search_options", "{}", kUnsupported},
    {"reasoning_effort", "\"low\"", kUnsupported},
    {"verbosity", "\"low\"", kUnsupported},
};

class ServeFields : public ServiceTest {
 protected:
  void expect_refused(const std::string& path, ordered_json body, const Wrong& wrong) {
    body[wrong.name] = ordered_json::parse(wrong.value);
    const HttpAnswer answer = post(path, body);
    ASSERT_EQ(answer.status, 400) << path << ' ' << wrong.name << ' ' << wrong.value;
    const ordered_json error = answer.json()["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["param"], wrong.name) << error;
    EXPECT_EQ(error["code"], wrong.code) << error;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(wrong.name));
  }
  const ordered_json completion_ = {{"prompt", "a"}};
  const ordered_json chat_ = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
};

TEST_F(ServeFields, WhatIsWrongIsNamed) {
  for (const Wrong& wrong : kWrongEverywhere) {
    expect_refused("/v1/completions", completion_, wrong);
    expect_refused("/v1/chat/completions", chat_, wrong);
  }
  for (const Wrong& wrong : kWrongCompletions)
    expect_refused("/v1/completions", completion_, wrong);
  for (const Wrong& wrong : kWrongChats) expect_refused("/v1/chat/completions", chat_, wrong);
  EXPECT_EQ(generator_.num_submitted(), 0);
}

TEST_F(ServeFields, FieldsWithinFieldsAreNamed) {
  const auto param_of = [&](const char* body) {
    const HttpAnswer answer = ask("POST /v1/chat/completions", body);
    EXPECT_EQ(answer.status, 400) << body;
    return answer.json()["error"]["param"].get<std::string>();
  };
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":"a"}],)"
                     R"("stream_options":{"include_usage":1}})"),
            "stream_options.include_usage");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":"a"}],"stream_options":{"x":1}})"),
            "stream_options.x");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"),
            "messages[0].content[0]");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"f"}]})"),
            "tools[0]");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":"a"}],)"
                     R"("response_format":{"type":"xml"}})"),
            "response_format.type");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":"a"}],)"
                     R"("response_format":{"type":"json_schema","json_schema":{}}})"),
            "response_format.json_schema.schema");
  EXPECT_EQ(param_of(R"({"messages":[{"role":"user","content":"a"}],"regex":"a","grammar":"b"})"),
            "regex");
}

TEST_F(ServeFields, WhatIsNoObjectOfJsonIsRefused) {
  for (const char* body : {"", "5", "[]", "{", R"({"prompt":"a","prompt":"b"})",
                           "{\"prompt\":\"\xFF\"}", R"({"prompt":1e999})"}) {
    const std::string text = *body == '\0' ? " " : body;
    const HttpAnswer answer = ask("POST /v1/completions", text);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_EQ(answer.json()["error"]["code"], "invalid_json") << body;
  }
  const std::string deep = "{\"prompt\":" + std::string(1000, '[') + std::string(1000, ']') + "}";
  EXPECT_EQ(ask("POST /v1/completions", deep).status, 400);
  std::string wide = "{\"prompt\":\"a\"";
  for (int i = 0; i < 3000; ++i) wide += ",\"" + std::to_string(i) + "\":0";
  EXPECT_THAT(ask("POST /v1/completions", wide + "}").body, HasSubstr("2048 members"));
}

TEST_F(ServeFields, FieldsThatChangeNothingAreTaken) {
  ordered_json body = chat_;
  body.update(ordered_json{{"user", "me"},
                           {"metadata", {{"a", "b"}}},
                           {"store", true},
                           {"service_tier", "auto"},
                           {"safety_identifier", "x"},
                           {"prompt_cache_key", "x"},
                           {"modalities", {"text"}},
                           {"tool_choice", "auto"},
                           {"response_format", {{"type", "text"}}},
                           {"temperature", nullptr},
                           {"audio", nullptr},
                           {"stop", nullptr}});
  EXPECT_EQ(post("/v1/chat/completions", body).status, 200);
  body = completion_;
  body.update(ordered_json{{"best_of", 1}, {"suffix", ""}, {"top_k", -1}, {"max_tokens", 0}});
  EXPECT_EQ(post("/v1/completions", body).status, 200);
}

TEST_F(ServeFields, PartsOfTextAreOneText) {
  const ordered_json parts = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  ASSERT_EQ(chat({{"messages", {{{"role", "user"}, {"content", parts}}}}}).status, 200);
  EXPECT_EQ(generator_.take_requests().at(0).prompt, tokens("<user>ab<assistant>"));
}

TEST_F(ServeFields, MoreVariablesReachTheTemplate) {
  EXPECT_EQ(chat({{"chat_template_kwargs", {{"enable_thinking", false}}}}).status, 200);
  const HttpAnswer answer = chat({{"chat_template_kwargs", {{"messages", 1}}}});
  EXPECT_EQ(answer.status, 400);
}

// A constraint that allows everything.
class Anything : public TokenConstraint {
 public:
  void mask(std::span<std::uint64_t> /*allowed*/) override {}
  void accept(std::int32_t /*token*/) override {}
  bool is_over() const override { return false; }
};

TEST_F(ServeFields, FormsGoToTheirMaker) {
  std::vector<FormatRequest> seen;
  ServedModel served = model();
  served.make_constraint = [&seen](
                               const FormatRequest& format,
                               std::span<const std::int32_t>) -> std::unique_ptr<TokenConstraint> {
    seen.push_back(format);
    if (format.text == "(") throw user_error("a bracket is not closed");
    return std::make_unique<Anything>();
  };
  service_ = std::make_unique<Service>(options_);
  service_->serve(std::move(served));
  const ordered_json schema = {{"type", "json_schema"},
                               {"json_schema", {{"name", "x"}, {"schema", {{"type", "object"}}}}}};
  EXPECT_EQ(chat({{"response_format", schema}}).status, 200);
  EXPECT_EQ(chat({{"response_format", {{"type", "json_object"}}}}).status, 200);
  EXPECT_EQ(chat({{"grammar", "root ::= \"a\""}}).status, 200);
  const HttpAnswer answer = chat({{"regex", "("}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["param"], "regex");
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0].kind, FormatRequest::Kind::kJsonSchema);
  EXPECT_EQ(seen[0].text, R"({"type":"object"})");
  EXPECT_EQ(seen[1].kind, FormatRequest::Kind::kJsonObject);
  EXPECT_EQ(seen[2].kind, FormatRequest::Kind::kGrammar);
  EXPECT_EQ(seen[3].kind, FormatRequest::Kind::kRegex);
}

}  // namespace
}  // namespace atl::serve::api
