#include "atoll/serve/api/keys.h"

#include "atoll/base/error.h"
#include "atoll/serve/api/service_testing.h"

namespace atl::serve::api {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFirst = "0123456789abcdef";
constexpr const char* kSecond = "fedcba9876543210";

std::string bearer(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

TEST(ApiKeys, AreReadALine) {
  const KeyList list =
      KeyList::parse(std::string("# ours\n") + kFirst + "\r\n\n  " + kSecond + "\n", "keys");
  http::Request request;
  EXPECT_FALSE(list.asker(request).has_value());
  request.fields = {{"authorization", std::string("Bearer ") + kFirst}};
  const auto first = list.asker(request);
  request.fields = {{"authorization", std::string("Bearer ") + kSecond}};
  const auto second = list.asker(request);
  ASSERT_TRUE(first && second);
  EXPECT_NE(*first, *second);
  for (const char* wrong : {"Bearer 0123456789abcdeg", "Bearer 0123456789abcde", "Bearer ",
                            "0123456789abcdef", "bearer"}) {
    request.fields = {{"authorization", wrong}};
    EXPECT_FALSE(list.asker(request).has_value()) << wrong;
  }
}

TEST(ApiKeys, AFileThatIsNoneIsNamed) {
  for (const char* content : {"", "# nothing\n", "short\n", "0123456789abcdef two\n"}) {
    try {
      KeyList::parse(content, "the-file");
      ADD_FAILURE() << content;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), HasSubstr("the-file"));
    }
  }
}

class ServeKeys : public ServiceTest {
 protected:
  ServeKeys() {
    options_.keys = KeyList::parse(std::string(kFirst) + "\n" + kSecond + "\n", "keys");
    options_.assets = {{"/index.html", "text/html", "page"}};
  }
};

TEST_F(ServeKeys, NobodyIsServedWithoutOne) {
  const HttpAnswer answer = complete();
  EXPECT_EQ(answer.status, 401);
  EXPECT_THAT(answer.head, HasSubstr("WWW-Authenticate: Bearer"));
  EXPECT_EQ(answer.json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}, bearer("0123456789abcdeX")).status, 401);
  EXPECT_EQ(ask("GET /v1/models").status, 401);
  EXPECT_EQ(ask("GET /metrics").status, 401);
  EXPECT_EQ(ask("GET /health").status, 200);
  EXPECT_EQ(ask("GET /").status, 200);
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}}, bearer(kSecond)).status, 200);
  EXPECT_EQ(ask("GET /v1/models", "", bearer(kFirst)).status, 200);
}

TEST_F(ServeKeys, ShareNoCache) {
  const nlohmann::ordered_json body = {{"prompt", "the same prompt"}};
  const auto cached = [&](const char* key) {
    const HttpAnswer answer = post("/v1/completions", body, bearer(key));
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached(kFirst), 0);
  EXPECT_EQ(cached(kFirst), 15);
  EXPECT_EQ(cached(kSecond), 0);
}

}  // namespace
}  // namespace atl::serve::api
