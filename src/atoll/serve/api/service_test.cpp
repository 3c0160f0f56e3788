#include "atoll/serve/api/service.h"

#include <future>

#include "atoll/serve/api/service_testing.h"

namespace atl::serve::api {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using ServeApi = ServiceTest;

TEST_F(ServeApi, AnswersAChat) {
  const HttpAnswer answer = chat({{"model", "tiny"}, {"max_tokens", 50}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("Cache-Control: no-store"));
  const ordered_json json = answer.json();
  EXPECT_THAT(json["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "tiny");
  ASSERT_EQ(json["choices"].size(), 1U);
  const ordered_json& choice = json["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "Hello, world.");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  const std::vector<GenerationRequest> seen = generator_.take_requests();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].prompt, tokens("<user>Hi<assistant>"));
  EXPECT_EQ(seen[0].stop_tokens, std::vector<std::int32_t>{256});
}

TEST_F(ServeApi, ContinuesTexts) {
  const HttpAnswer answer = complete({{"prompt", {"One", "Two"}}, {"n", 2}, {"max_tokens", 5}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  const ordered_json json = answer.json();
  EXPECT_EQ(json["object"], "text_completion");
  ASSERT_EQ(json["choices"].size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(json["choices"][i]["index"], i);
    EXPECT_EQ(json["choices"][i]["text"], "Hello");
    EXPECT_EQ(json["choices"][i]["finish_reason"], "length");
  }
  // A prompt counts once, however many answers it has.
  EXPECT_EQ(json["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(json["usage"]["completion_tokens"], 20);
  EXPECT_EQ(json["usage"]["total_tokens"], 26);
}

TEST_F(ServeApi, PromptsMayBeIds) {
  const HttpAnswer answer = complete({{"prompt", {{1, 2, 3}, {4}}}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["choices"].size(), 2U);
  EXPECT_EQ(complete({{"prompt", {1, 2}}}).status, 200);
  EXPECT_EQ(complete({{"prompt", ""}}).status, 200);  // what follows the end of a text
}

TEST_F(ServeApi, ChoicesHaveSequenceNumbersOfTheirOwn) {
  ASSERT_EQ(complete({{"n", 3}, {"seed", 7}}).status, 200);
  std::vector<std::int64_t> numbers;
  for (const GenerationRequest& request : generator_.take_requests()) {
    EXPECT_EQ(request.sampling.seed, 7U);
    numbers.push_back(request.sequence);
  }
  EXPECT_THAT(numbers, ::testing::UnorderedElementsAre(0, 1, 2));
}

TEST_F(ServeApi, PassesParametersOn) {
  ASSERT_EQ(complete({{"temperature", 0.5},
                      {"top_p", 0.25},
                      {"top_k", 7},
                      {"min_p", 0.125},
                      {"presence_penalty", 1},
                      {"frequency_penalty", -1},
                      {"repetition_penalty", 1.5},
                      {"logit_bias", {{"9", -100}, {"3", 2.5}}},
                      {"stop_token_ids", {300, 10}},
                      {"ignore_eos", true}})
                .status,
            200);
  const std::vector<GenerationRequest> all = generator_.take_requests();
  const GenerationRequest& seen = all.at(0);
  EXPECT_EQ(seen.sampling.temperature, 0.5);
  EXPECT_EQ(seen.sampling.top_p, 0.25);
  EXPECT_EQ(seen.sampling.top_k, 7);
  EXPECT_EQ(seen.changes.min_p, 0.125);
  EXPECT_EQ(seen.changes.presence_penalty, 1);
  EXPECT_EQ(seen.changes.frequency_penalty, -1);
  EXPECT_EQ(seen.changes.repetition_penalty, 1.5);
  const std::vector<std::pair<std::int32_t, double>> bias = {{3, 2.5}, {9, -100}};
  EXPECT_EQ(seen.changes.bias, bias);
  EXPECT_EQ(seen.stop_tokens, (std::vector<std::int32_t>{10, 300}));
  EXPECT_EQ(seen.max_new_tokens, 500);
}

TEST_F(ServeApi, ADefaultFillsTheRoomThatThereIs) {
  ASSERT_EQ(chat().status, 200);
  const auto prompt = std::ssize(tokens("<user>Hi<assistant>"));
  EXPECT_EQ(generator_.take_requests().at(0).max_new_tokens, generator_.max_tokens() - prompt);
  ASSERT_EQ(post("/v1/completions", {{"prompt", "a"}}).status, 200);
  EXPECT_EQ(generator_.take_requests().at(0).max_new_tokens, 16);
  const HttpAnswer answer = complete({{"prompt", std::string(2000, 'a')}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["code"], "context_length_exceeded");
}

TEST_F(ServeApi, UsageTellsWhatTheCacheHad) {
  ASSERT_EQ(
      complete({{"prompt", "Once upon"}}).json()["usage"]["prompt_tokens_details"]["cached_tokens"],
      0);
  const ordered_json usage = complete({{"prompt", "Once more"}}).json()["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 5);
  const ordered_json salted =
      complete({{"prompt", "Once more"}, {"cache_salt", "mine"}}).json()["usage"];
  EXPECT_EQ(salted["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(ServeApi, ListsItsModels) {
  const ordered_json list = ask("GET /v1/models").json();
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["max_model_len"], 1000);
  EXPECT_EQ(ask("GET /v1/models/tiny").json()["object"], "model");
  EXPECT_EQ(ask("GET /v1/models/large").status, 404);
  const HttpAnswer answer = chat({{"model", "large"}});
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.json()["error"]["code"], "model_not_found");
}

TEST_F(ServeApi, TokensAndBack) {
  const ordered_json answer = post("/tokenize", {{"prompt", "Hi \xF0\x9F\x98\x80"}}).json();
  EXPECT_EQ(answer["count"], 7);
  EXPECT_EQ(post("/detokenize", {{"tokens", answer["tokens"]}}).json()["prompt"],
            "Hi \xF0\x9F\x98\x80");
  const ordered_json messages = {{{"role", "user"}, {"content", "Hi"}}};
  EXPECT_EQ(post("/tokenize", {{"messages", messages}}).json()["tokens"].size(), 19U);
  EXPECT_EQ(post("/tokenize", ordered_json::object()).status, 400);
  EXPECT_EQ(post("/detokenize", {{"tokens", {99999}}}).json()["error"]["param"], "tokens");
}

TEST_F(ServeApi, IsNotReadyUntilTheModelIsThere) {
  Service service(options_);
  const auto status = [&](const std::string& line, const std::string& body = "") {
    return taken_apart(http::ask(service.port(), line, "", body)).status;
  };
  EXPECT_EQ(status("GET /health"), 503);
  EXPECT_EQ(status("GET /v1/models"), 503);
  EXPECT_EQ(status("POST /v1/completions", R"({"prompt":"a"})"), 503);
  EXPECT_EQ(status("GET /metrics"), 200);
  service.serve(model());
  EXPECT_EQ(status("GET /health"), 200);
  EXPECT_EQ(status("POST /v1/completions", R"({"prompt":"a"})"), 200);
  service.refuse_new();
  EXPECT_EQ(status("GET /health"), 503);
  EXPECT_EQ(status("POST /v1/completions", R"({"prompt":"a"})"), 503);
}

TEST_F(ServeApi, CountsForPrometheus) {
  ASSERT_EQ(complete({{"n", 2}}).status, 200);
  const std::string page = ask("GET /metrics").body;
  EXPECT_THAT(page, HasSubstr("\natoll_requests_finished_total 2\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_generated_tokens_total 26\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE atoll_time_to_first_token_seconds histogram\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_time_to_first_token_seconds_count 2\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_inter_token_seconds_bucket{le=\"+Inf\"} 24\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_queue_seconds_count 2\n"));
  EXPECT_THAT(page, HasSubstr("\natoll_request_seconds_count 2\n"));
}

TEST_F(ServeApi, TheDocumentHasTheFieldsThatAreRead) {
  const ordered_json document = ask("GET /openapi.json").json();
  const ordered_json& schema = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]
                                       ["content"]["application/json"]["schema"];
  EXPECT_EQ(schema["required"], ordered_json::array({"messages"}));
  EXPECT_EQ(schema["properties"]["temperature"]["anyOf"][0]["maximum"], 2);
  const ordered_json& top_p = schema["properties"]["top_p"]["anyOf"][0];
  EXPECT_EQ(top_p["exclusiveMinimum"], 0);
  EXPECT_FALSE(top_p.contains("minimum"));
  EXPECT_FALSE(schema["properties"].contains("audio"));
  EXPECT_TRUE(document["paths"].contains("/v1/models/{model}"));
}

TEST_F(ServeApi, ServesThePageItIsGiven) {
  options_.assets = {{"/index.html", "text/html; charset=utf-8", "<p>chat</p>"}};
  EXPECT_EQ(ask("GET /").body, "<p>chat</p>");
  EXPECT_EQ(ask("GET /other").status, 404);
  EXPECT_EQ(ask("DELETE /").status, 405);
  EXPECT_EQ(ask("GET /v1/completions").status, 405);
  EXPECT_EQ(ask("POST /v1/models", "{}").status, 405);
}

TEST_F(ServeApi, PagesOfStrangersMayNotAsk) {
  const std::string stranger = "Origin: http://elsewhere.example\r\n";
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}, stranger).status, 403);
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}, "Origin: http://localhost\r\n").status, 200);
  const std::string answer =
      http::ask(service().port(), "GET /v1/models", "", "", "elsewhere.example");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 421"));
}

TEST_F(ServeApi, WhatIsNoHttpGetsAnErrorOfTheSameForm) {
  const HttpAnswer answer = ask("POST /v1/completions", "", "Content-Length: much\r\n");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["type"], "invalid_request_error");
  EXPECT_FALSE(answer.json()["error"]["message"].get<std::string>().empty());
}

// Allows everything.
class AnyText : public TokenConstraint {
 public:
  void mask(std::span<std::uint64_t> /*allowed*/) override {}
  void accept(std::int32_t /*token*/) override {}
  bool is_over() const override { return false; }
};

TEST_F(ServeApi, ALongBodyHoldsUpNoShortOne) {
  std::promise<void> is_reading, may_go_on;
  ServedModel served = model();
  served.make_constraint = [&](const FormatRequest&, std::span<const std::int32_t>) {
    is_reading.set_value();
    may_go_on.get_future().wait();
    return std::make_unique<AnyText>();
  };
  service_ = std::make_unique<Service>(options_);
  service_->serve(std::move(served));
  auto slow = std::async(std::launch::async, [&] {
    return complete({{"user", std::string(200'000, 'x')}, {"regex", "a+"}}).status;
  });
  is_reading.get_future().wait();
  EXPECT_EQ(complete().status, 200);
  may_go_on.set_value();
  EXPECT_EQ(slow.get(), 200);
}

TEST_F(ServeApi, AFailureOfTheModelIsAnError) {
  generator_.fail("the weights are not finite");
  const HttpAnswer answer = complete();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.json()["error"]["message"], "the weights are not finite");
  EXPECT_EQ(answer.json()["error"]["type"], "server_error");
}

}  // namespace
}  // namespace atl::serve::api
