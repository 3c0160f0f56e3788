// Requests of strangers: whole and in pieces they must come to the same, within the limits.

#include "atoll/http/request_parser.h"

#include "fuzz.h"

namespace {

using atl::http::Request;
using atl::http::RequestParser;

constexpr atl::http::Limits kLimits{
    .target_bytes = 200, .head_bytes = 2000, .num_fields = 20, .body_bytes = 1000};

void expect(bool holds, const char* what) {
  if (holds) return;
  fmt::print(stderr, "{}\n", what);
  std::abort();
}

void check(const Request& request) {
  expect(!request.method.empty() && request.target.front() == '/', "a request without a target");
  expect(request.target.size() <= kLimits.target_bytes, "a target beyond its limit");
  expect(request.body.size() <= kLimits.body_bytes, "a body beyond its limit");
  expect(request.fields.size() <= kLimits.num_fields, "fields beyond their limit");
  int lengths = 0;
  for (const auto& [name, value] : request.fields) {
    lengths += name == "content-length" ? 1 : 0;
    expect(name != "transfer-encoding", "a body without a length");
    expect(value.find_first_of(std::string_view("\r\n\0", 3)) == value.npos, "a line in a field");
  }
  expect(lengths <= 1, "two lengths");
  expect(request.path.find('\0') == request.path.npos, "a NUL in a path");
  (void)request.cookie("a");
}

// Every request of the bytes as text, and how they end.
std::string read(std::string_view bytes, std::size_t piece) {
  RequestParser parser(kLimits);
  std::string read;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    RequestParser::State state = parser.feed(bytes.substr(at, piece));
    while (state == RequestParser::State::kWhole) {
      check(parser.request());
      read += fmt::format("{} {} {}|", parser.request().method, parser.request().target,
                          parser.request().body);
      state = parser.next();
    }
  }
  if (parser.state() == RequestParser::State::kRefused) {
    read += fmt::format("{}", parser.refusal().status);
  }
  return read;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = atl::fuzz::text(data, size);
  const std::string whole = read(bytes, std::max<std::size_t>(size, 1));
  expect(read(bytes, 1) == whole, "single bytes come to something else");
  expect(read(bytes, 7) == whole, "pieces come to something else");
  return 0;
}
