// Requests with fields of any value: each is served or refused, and none is the server's fault.

#include <random>

#include "atoll/serve/api/chat_request.h"
#include "atoll/serve/api/completion_request.h"
#include "atoll/serve/api/service_testing.h"
#include "atoll/serve/api/token_routes.h"

namespace atl::serve::api {
namespace {

using nlohmann::ordered_json;

const std::vector<const char*> kValues = {
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2",
    "0.5",
    "1.5",
    "1e300",
    "-1e300",
    "18446744073709551615",
    "-9223372036854775808",
    "\"\"",
    "\"a\"",
    "\"\\u0000\"",
    "\"\xF0\x9F\x98\x80\"",
    "[]",
    "[1,2]",
    "[\"a\"]",
    "[[1],[2]]",
    "[null]",
    "[256,999999]",
    "{}",
    "{\"1\":1}",
    "{\"type\":\"text\"}",
    "{\"type\":\"json_schema\",\"json_schema\":{}}",
    "{\"include_usage\":true}",
    "{\"messages\":[]}",
    "[{\"role\":\"user\",\"content\":\"a\"}]",
    "[{\"role\":\"user\"}]",
    "[{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"\"}]}]",
    "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"arguments\":\"[}\"}}]}]",
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"};

class RandomRequests : public ServiceTest {
 protected:
  void ask_often(const std::string& path, const std::vector<FieldRule>& rules,
                 const ordered_json& valid, int rounds) {
    for (int round = 0; round < rounds; ++round) {
      ordered_json body = valid;
      for (std::uint32_t i = 0, count = random_() % 4; i < count; ++i) {
        const FieldRule& rule = rules[random_() % rules.size()];
        body[rule.name] = ordered_json::parse(kValues[random_() % kValues.size()]);
      }
      const HttpAnswer answer = post(path, body);
      ASSERT_TRUE(answer.status >= 200 && answer.status < 500) << path << body << answer.body;
      ++statuses_[answer.status];
    }
  }

  std::mt19937 random_{1};
  std::map<int, int> statuses_;
};

TEST_F(RandomRequests, AreNoFaultOfTheServer) {
  constexpr int kRounds = 500;
  const ordered_json messages = {{{"role", "user"}, {"content", "a"}}};
  ask_often("/v1/completions", completion_rules(), {{"prompt", "a"}}, kRounds);
  ask_often("/v1/chat/completions", chat_rules(), {{"messages", messages}}, kRounds);
  ask_often("/tokenize", tokenize_rules(), {{"prompt", "a"}}, kRounds);
  ask_often("/detokenize", detokenize_rules(), {{"tokens", {1}}}, kRounds);
  EXPECT_GT(statuses_[200], kRounds);
  EXPECT_GT(statuses_[400], kRounds);
}

}  // namespace
}  // namespace atl::serve::api
