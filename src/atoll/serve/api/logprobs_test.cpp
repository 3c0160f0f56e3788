// Log-probabilities, prompts that are echoed, and ids.

#include "atoll/serve/api/service_testing.h"

namespace atl::serve::api {
namespace {

using nlohmann::ordered_json;

using ServeLogprobs = ServiceTest;

TEST_F(ServeLogprobs, OfAChat) {
  says_ = "a\xF0\x9F\x98\x80";
  const ordered_json list =
      chat({{"logprobs", true}, {"top_logprobs", 2}}).json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(list.size(), 5U);
  EXPECT_EQ(list[0]["token"], "a");
  EXPECT_EQ(list[0]["logprob"], scripted_logprob('a'));
  EXPECT_EQ(list[0]["bytes"], ordered_json::array({97}));
  EXPECT_EQ(list[0]["top_logprobs"][1]["token"], "b");
  EXPECT_EQ(list[0]["top_logprobs"][1]["logprob"], scripted_logprob('a') - 1);
  EXPECT_EQ(list[1]["token"], "bytes:\\xf0");
  EXPECT_EQ(list[1]["bytes"], ordered_json::array({0xF0}));
}

TEST_F(ServeLogprobs, OfACompletion) {
  says_ = "ab";
  const ordered_json answer = complete({{"logprobs", 1}}).json()["choices"][0]["logprobs"];
  EXPECT_EQ(answer["tokens"], ordered_json::array({"a", "b"}));
  EXPECT_EQ(answer["token_logprobs"],
            ordered_json::array({scripted_logprob('a'), scripted_logprob('b')}));
  EXPECT_EQ(answer["top_logprobs"][0], (ordered_json{{"a", scripted_logprob('a')}}));
  EXPECT_EQ(answer["text_offset"], ordered_json::array({0, 1}));
  const ordered_json none = complete({{"logprobs", 0}}).json()["choices"][0]["logprobs"];
  EXPECT_EQ(none["tokens"].size(), 2U);
  EXPECT_TRUE(none["top_logprobs"][0].is_null());
}

TEST_F(ServeLogprobs, ThoseOfAStopTextAreLeftOut) {
  says_ = "abENDc";
  const ordered_json choice = complete({{"logprobs", 0}, {"stop", "END"}}).json()["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["logprobs"]["tokens"], ordered_json::array({"a", "b"}));
}

TEST_F(ServeLogprobs, AnEchoBeginsWithThePrompt) {
  says_ = "!";
  ordered_json fields = {{"prompt", "\xC3\xA9t"}, {"echo", true}, {"logprobs", 1}};
  const ordered_json choice = complete(fields).json()["choices"][0];
  EXPECT_EQ(choice["text"], "\xC3\xA9t!");
  const ordered_json& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 4U);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][2], scripted_logprob('t'));
  EXPECT_EQ(logprobs["text_offset"], ordered_json::array({0, 0, 1, 2}));
  fields.erase("logprobs");
  EXPECT_EQ(complete(fields).json()["choices"][0]["text"], "\xC3\xA9t!");
  fields["stream"] = true;
  std::string text;
  for (const ordered_json& chunk : chunks(complete(fields))) text += chunk["choices"][0]["text"];
  EXPECT_EQ(text, "\xC3\xA9t!");
}

TEST_F(ServeLogprobs, APromptAloneIsScored) {
  const ordered_json choice =
      complete({{"prompt", "ab"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}})
          .json()["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), 2U);
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(ServeLogprobs, ATokenThatTheTokenizerLacksHasNoText) {
  ScriptedGenerator generator([](const GenerationRequest&) {
    return std::vector<std::int32_t>{'a', 390, 'b'};
  });
  ServedModel served = model();
  served.generator = &generator;
  service_ = std::make_unique<Service>(options_);
  service_->serve(std::move(served));
  const ordered_json choice = complete({{"logprobs", 1}}).json()["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["logprobs"]["tokens"], ordered_json::array({"a", "", "b"}));
  service_.reset();
}

TEST_F(ServeLogprobs, IdsAreToldWhereTheyAreWanted) {
  says_ = "ab";
  const ordered_json completion =
      complete({{"prompt", "x"}, {"return_token_ids", true}}).json()["choices"][0];
  EXPECT_EQ(completion["token_ids"], ordered_json::array({'a', 'b'}));
  EXPECT_EQ(completion["prompt_token_ids"], ordered_json::array({'x'}));
  const ordered_json answer = chat({{"return_token_ids", true}}).json();
  EXPECT_EQ(answer["prompt_token_ids"].size(), 19U);
  EXPECT_EQ(answer["choices"][0]["token_ids"], ordered_json::array({'a', 'b'}));
}

}  // namespace
}  // namespace atl::serve::api
