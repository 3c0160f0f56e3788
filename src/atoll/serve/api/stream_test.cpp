// Streams: their form, and that they say what a whole answer says.

#include <random>

#include "atoll/serve/api/service_testing.h"
#include "atoll/text/bpe_trainer.h"

namespace atl::serve::api {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

using ServeStream = ServiceTest;

TEST_F(ServeStream, HasTheFormThatClientsRead) {
  const HttpAnswer answer = chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/event-stream"));
  EXPECT_THAT(answer.head, HasSubstr("Cache-Control: no-store"));
  EXPECT_THAT(answer.head, HasSubstr("X-Accel-Buffering: no"));
  const std::vector<ordered_json> list = chunks(answer);
  ASSERT_GE(list.size(), 4U);
  EXPECT_EQ(list.front()["choices"][0]["delta"]["role"], "assistant");
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(list[i]["id"], list[0]["id"]);
    ASSERT_TRUE(list[i].contains("usage"));
    EXPECT_EQ(list[i]["usage"].is_null(), i + 1 < list.size());
    if (i + 1 == list.size()) continue;
    const ordered_json& choice = list[i]["choices"][0];
    ASSERT_TRUE(choice.contains("finish_reason"));
    EXPECT_EQ(choice["finish_reason"].is_null(), i + 2 < list.size());
  }
  const ordered_json& last = list[list.size() - 2]["choices"][0];
  EXPECT_EQ(last["finish_reason"], "stop");
  EXPECT_EQ(last["delta"], ordered_json::object());
  EXPECT_EQ(list.back()["choices"], ordered_json::array());
  EXPECT_EQ(list.back()["usage"]["completion_tokens"], 13);
}

TEST_F(ServeStream, HasNoUsageThatNobodyAskedFor) {
  EXPECT_THAT(complete({{"stream", true}}).body, Not(HasSubstr("usage")));
}

TEST_F(ServeStream, SeveralChoicesGoThroughOneStream) {
  says_ = "abc";
  std::map<int, std::string> texts;
  for (const ordered_json& chunk : chunks(chat({{"stream", true}, {"n", 3}}))) {
    const ordered_json& choice = chunk["choices"][0];
    texts[choice["index"]] += choice["delta"].value("content", "");
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "abc"}, {1, "abc"}, {2, "abc"}}));
}

TEST_F(ServeStream, PingsWhileAPromptIsRead) {
  options_.ping_every = std::chrono::milliseconds(1);
  generator_.play_up_to(0);
  service();
  HttpClient client(service().port());
  client.post("/v1/completions", R"({"prompt":"a","stream":true})");
  EXPECT_THAT(client.read_until(": ping\n\n"), HasSubstr(": ping\n\n"));
  generator_.play_all();
  EXPECT_THAT(client.read_until("[DONE]"), HasSubstr("[DONE]"));
}

TEST_F(ServeStream, AFailureIsAnEvent) {
  generator_.fail("the weights are not finite");
  const std::vector<ordered_json> list = chunks(complete({{"stream", true}}));
  EXPECT_EQ(list.back()["error"]["message"], "the weights are not finite");
}

// What a client has seen in the end.
struct Seen {
  std::string text;
  std::string finish;
  ordered_json tokens = ordered_json::array();
  ordered_json ids = ordered_json::array();
  bool operator==(const Seen&) const = default;
};

void append(ordered_json& list, const ordered_json& more) {
  for (const ordered_json& each : more) list.push_back(each);
}

void add_details(Seen& seen, const ordered_json& choice) {
  if (!choice["logprobs"].is_null()) append(seen.tokens, choice["logprobs"]["content"]);
  append(seen.ids, choice["token_ids"]);
}

Seen seen_in(const ordered_json& whole) {
  const ordered_json& choice = whole["choices"][0];
  Seen seen{.text = choice["message"]["content"], .finish = choice["finish_reason"]};
  add_details(seen, choice);
  return seen;
}

Seen seen_in(const std::vector<ordered_json>& chunks) {
  Seen seen;
  for (const ordered_json& chunk : chunks) {
    const ordered_json& choice = chunk["choices"][0];
    const std::string piece = choice["delta"].value("content", "");
    seen.text += piece;
    if (!choice["finish_reason"].is_null()) seen.finish = choice["finish_reason"];
    add_details(seen, choice);
  }
  return seen;
}

// A text of pieces that are hard to cut: characters of 1 to 4 bytes, joined ones, near stops.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> pieces = {
      "a",   "b", "ab",   "END", "EN",       " ",
      "\n",  "é", "中文", "字",  "😀",        "👩‍👩‍👧",
      "한",  "Ω", "\"",   "\\",  "\xE4\xB8", "\xF0\x9F\x98",
      "\xFF"};
  std::string text;
  for (std::uint32_t i = 0, count = random() % 12; i < count; ++i) {
    text += pieces[random() % pieces.size()];
  }
  return text;
}

std::vector<std::string> random_stops(std::mt19937& random) {
  static const std::vector<std::string> stops = {"END",  "ENDE", "文字", "😀b",
                                                 "ab\n", "\n\n", "é中"};
  std::vector<std::string> chosen;
  for (std::uint32_t i = 0, count = random() % 4; i < count; ++i) {
    chosen.push_back(stops[random() % stops.size()]);
  }
  return chosen;
}

class StreamEqualsWhole : public ServiceTest {
 protected:
  void compare(int rounds) {
    std::mt19937 random(1);
    for (int round = 0; round < rounds; ++round) {
      says_ = random_text(random);
      ordered_json fields = {{"logprobs", true}, {"top_logprobs", 2}, {"return_token_ids", true}};
      const std::vector<std::string> stops = random_stops(random);
      if (!stops.empty()) fields["stop"] = stops;
      const Seen whole = seen_in(chat(fields).json());
      fields["stream"] = true;
      const Seen streamed = seen_in(chunks(chat(fields)));
      ASSERT_EQ(streamed.text, whole.text) << says_;
      ASSERT_EQ(streamed.finish, whole.finish);
      ASSERT_EQ(streamed.tokens, whole.tokens) << says_;
      ASSERT_EQ(streamed.ids, whole.ids);
      for (const std::string& stop : stops) {
        ASSERT_EQ(whole.text.find(stop), whole.text.npos) << whole.text;
      }
    }
  }
};

TEST_F(StreamEqualsWhole, WithATokenForEachByte) {
  compare(150);
}

TEST_F(StreamEqualsWhole, WithTokensThatStraddleStops) {
  const std::string_view text = "abEND ENDab 中文中文字 文字😀b 😀bab\n\n é中é中 abab\nENDE ENDENDE";
  tokenizer_ = train_bpe({&text, 1}, {.vocab_size = 320});
  compare(150);
}

TEST_F(ServeStream, AStopThatNeverComesIsShown) {
  says_ = "the EN";
  std::string text;
  for (const ordered_json& chunk : chunks(complete({{"stream", true}, {"stop", "END"}}))) {
    text += chunk["choices"][0]["text"];
  }
  EXPECT_EQ(text, "the EN");
}

}  // namespace
}  // namespace atl::serve::api
