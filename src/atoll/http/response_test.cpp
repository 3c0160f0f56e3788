#include "atoll/http/response.h"

#include <gmock/gmock.h>

#include "atoll/http/access.h"

namespace atl::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Response, NoTextAddsAHeader) {
  Response response = Response::plain(400, "a\r\nSet-Cookie: x");
  response.add("X", "b\r\nSet-Cookie: y");
  const std::string head = head_of(response, BodyEnd::kLength, true);
  EXPECT_THAT(head, Not(HasSubstr("\nSet-Cookie")));
  EXPECT_THAT(head, HasSubstr("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 17\r\n"));
}

TEST(Response, EventsKeepTheirLines) {
  EXPECT_EQ(event_text("run", "7", "a\nb\r\nc\rd"),
            "id: 7\nevent: run\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
  EXPECT_EQ(event_text("x\ny", "", ""), "event: x y\ndata: \n\n");
}

TEST(Response, AnEmptyChunkIsNone) {
  EXPECT_EQ(chunk_of(""), "");
  EXPECT_EQ(chunk_of(std::string(26, 'a')), "1a\r\n" + std::string(26, 'a') + "\r\n");
}

Request from(const std::string& host, const std::string& origin = "") {
  Request request;
  request.fields.emplace_back("host", host);
  if (!origin.empty()) request.fields.emplace_back("origin", origin);
  return request;
}

TEST(Access, AStrangersNameIsNotThisServers) {
  for (const char* host : {"localhost", "localhost:80", "LOCALHOST", "127.0.0.1:7412", "[::1]:7412",
                           "192.168.1.4:80", "alpha:80", "Alpha"}) {
    EXPECT_TRUE(is_known_host(from(host), {"alpha"})) << host;
  }
  for (const char* host : {"evil.example", "evil.example:7412", "", "localhost.evil.example",
                           "[evil", "127.0.0.1.evil.example", "alpha.evil.example"}) {
    EXPECT_FALSE(is_known_host(from(host), {"alpha"})) << host;
  }
  EXPECT_FALSE(is_known_host(Request(), {}));
}

TEST(Access, AnotherSitesPageIsNotOurs) {
  EXPECT_TRUE(is_own_origin(from("a:80")));
  EXPECT_TRUE(is_own_origin(from("a:80", "http://a:80")));
  EXPECT_FALSE(is_own_origin(from("a:80", "http://b:80")));
  EXPECT_FALSE(is_own_origin(from("a:80", "http://a:81")));
  EXPECT_FALSE(is_own_origin(from("a:80", "null")));
}

TEST(Access, TokensAreCompared) {
  EXPECT_TRUE(is_same_secret("abc", "abc"));
  EXPECT_FALSE(is_same_secret("abc", "abd"));
  EXPECT_FALSE(is_same_secret("abc", "ab"));
  EXPECT_EQ(new_token().size(), 32u);
  EXPECT_NE(new_token(), new_token());
}

TEST(Access, LoopbackIsThisMachineAlone) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("127.evil.example"));
}

}  // namespace
}  // namespace atl::http
