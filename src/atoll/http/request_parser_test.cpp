#include "atoll/http/request_parser.h"

#include <gmock/gmock.h>

namespace atl::http {
namespace {

using State = RequestParser::State;

// The status that these bytes are refused with; 0: they make one request.
int status_of(const std::string& bytes, const Limits& limits = {}) {
  RequestParser parser(limits);
  const State whole = parser.feed(bytes);
  // In single bytes they must come to the same.
  RequestParser slow(limits);
  State state = State::kMore;
  for (const char c : bytes) state = slow.feed({&c, 1});
  EXPECT_EQ(state, whole) << bytes;
  EXPECT_EQ(slow.refusal().status, parser.refusal().status) << bytes;
  EXPECT_NE(whole, State::kMore) << bytes;
  return parser.refusal().status;
}

std::string get(const std::string& fields) {
  return "GET / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n";
}

TEST(RequestParser, TakesTargetFieldsAndBody) {
  RequestParser parser;
  ASSERT_EQ(parser.feed("POST /api/a%20b?x=1+2&y=%26&z HTTP/1.1\r\nHost: h:80\r\nX-Y:  v w \r\n"
                        "Content-Length: 5\r\n\r\nhelloGET"),
            State::kWhole);
  const Request& request = parser.request();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/api/a b");
  EXPECT_EQ(*request.parameter("x"), "1 2");
  EXPECT_EQ(*request.parameter("y"), "&");
  EXPECT_EQ(*request.parameter("z"), "");
  EXPECT_EQ(*request.field("x-y"), "v w");
  EXPECT_EQ(request.body, "hello");
  EXPECT_TRUE(request.keeps_alive);
  EXPECT_EQ(parser.next(), State::kMore);
  EXPECT_TRUE(parser.has_begun());  // "GET" is the next one's
}

TEST(RequestParser, PipelinedRequestsComeOneByOne) {
  RequestParser parser;
  ASSERT_EQ(parser.feed(get("") + "GET /2 HTTP/1.0\r\n\r\n"), State::kWhole);
  ASSERT_EQ(parser.next(), State::kWhole);
  EXPECT_EQ(parser.request().path, "/2");
  EXPECT_FALSE(parser.request().keeps_alive);
  EXPECT_EQ(parser.next(), State::kMore);
  EXPECT_FALSE(parser.has_begun());
}

// What two readers of the same bytes could take for different requests.
TEST(RequestParser, RefusesWhatCouldSmuggleARequest) {
  EXPECT_EQ(status_of(get("Content-Length: 3\r\nContent-Length: 3\r\n") + "abc"), 400);
  EXPECT_EQ(status_of(get("Content-Length: 3, 3\r\n") + "abc"), 400);
  EXPECT_EQ(status_of(get("Content-Length: +3\r\n") + "abc"), 400);
  EXPECT_EQ(status_of(get("Content-Length: 0x3\r\n") + "abc"), 400);
  EXPECT_EQ(status_of(get("Content-Length: -1\r\n")), 400);
  EXPECT_EQ(status_of(get("Content-Length:\r\n")), 400);
  EXPECT_EQ(status_of(get("Content-Length: 99999999999999999999\r\n")), 413);
  EXPECT_EQ(status_of(get("Transfer-Encoding: chunked\r\n") + "0\r\n\r\n"), 411);
  EXPECT_EQ(status_of(get("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n") + "abc"), 411);
  EXPECT_EQ(status_of(get("Transfer-Encoding: xchunked\r\n")), 411);
  EXPECT_EQ(status_of(get("Content-Length : 3\r\n") + "abc"), 400);
  EXPECT_EQ(status_of(get(" Content-Length: 3\r\n") + "abc"), 400);
  EXPECT_EQ(status_of(get("X: a\r\n b\r\n")), 400);
  EXPECT_EQ(status_of(get("X: a\nContent-Length: 3\r\n") + "abc"), 400);
  EXPECT_EQ(status_of(get("X: a\rb\r\n")), 400);
  EXPECT_EQ(status_of(get(std::string("X: a\0b\r\n", 8))), 400);
  EXPECT_EQ(status_of(get("Host: b\r\n")), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 0);
}

TEST(RequestParser, RefusesOtherFirstLines) {
  for (const char* line :
       {"GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET\t/ HTTP/1.1",
        "GET http://a/ HTTP/1.1", "OPTIONS * HTTP/1.1", "GET /a b HTTP/1.1", "G(T / HTTP/1.1",
        "GET /\x80 HTTP/1.1", "GET /#a HTTP/1.1", "GET /%zz HTTP/1.1", "GET /%00 HTTP/1.1",
        "GET /?a=%f HTTP/1.1", "GET / http/1.1", "GET / HTTP/11"}) {
    EXPECT_EQ(status_of(std::string(line) + "\r\nHost: a\r\n\r\n"), 400) << line;
  }
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

TEST(RequestParser, HoldsItsLimits) {
  const Limits limits{.target_bytes = 20, .head_bytes = 200, .num_fields = 3, .body_bytes = 10};
  EXPECT_EQ(status_of("GET /" + std::string(19, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", limits), 0);
  EXPECT_EQ(status_of("GET /" + std::string(20, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", limits),
            414);
  EXPECT_EQ(status_of(get("A: 1\r\nB: 2\r\n"), limits), 0);
  EXPECT_EQ(status_of(get("A: 1\r\nB: 2\r\nC: 3\r\n"), limits), 431);
  EXPECT_EQ(status_of(get("Content-Length: 10\r\n") + "0123456789", limits), 0);
  EXPECT_EQ(status_of(get("Content-Length: 11\r\n"), limits), 413);
  RequestParser parser(limits);  // a head without an end
  EXPECT_EQ(parser.feed("GET / HTTP/1.1\r\n" + std::string(300, 'a')), State::kRefused);
  EXPECT_EQ(parser.refusal().status, 431);
  EXPECT_EQ(parser.kept_bytes(), 0u);
}

TEST(RequestParser, OnlyOneExpectationIsMet) {
  RequestParser parser;
  EXPECT_EQ(parser.feed(get("Expect: 100-continue\r\nContent-Length: 2\r\n")), State::kMore);
  EXPECT_TRUE(parser.take_expectation());
  EXPECT_FALSE(parser.take_expectation());
  EXPECT_EQ(parser.feed("ab"), State::kWhole);
  EXPECT_EQ(status_of(get("Expect: coffee\r\n")), 417);
}

TEST(RequestParser, ConnectionCloseIsAWordOfAList) {
  RequestParser parser;
  ASSERT_EQ(parser.feed(get("Connection: x, Close\r\n")), State::kWhole);
  EXPECT_FALSE(parser.request().keeps_alive);
}

TEST(Request, FindsACookie) {
  Request request;
  request.fields = {{"cookie", "a=1; atoll-80=x=y;b=2"}};
  EXPECT_EQ(request.cookie("atoll-80"), "x=y");
  EXPECT_EQ(request.cookie("b"), "2");
  EXPECT_EQ(request.cookie("c"), std::nullopt);
}

}  // namespace
}  // namespace atl::http
