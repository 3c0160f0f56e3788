#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "atoll/http/request.h"

namespace atl::http {

/// Why a request cannot be served: the status to answer with, and one line for the person who reads
/// the answer. The connection ends after it, since where the next request begins is not known.
struct Refusal {
  int status = 0;  ///< 0: none
  std::string why;
};

/// Makes requests of the bytes of one connection, in any pieces: RFC 9112, without what lets two
/// readers of the same bytes disagree. Lines end with CR LF. A field's name ends at its colon, no
/// field goes on in a second line, and there is one Host. A body has one Content-Length, of digits;
/// Transfer-Encoding is refused.
class RequestParser {
 public:
  explicit RequestParser(const Limits& limits = {}) : limits_(limits) {}

  /// What can be said after the bytes so far.
  enum class State {
    kMore,     ///< the request is not whole
    kWhole,    ///< request() is; what came after it is kept for the next one
    kRefused,  ///< refusal() says why, for good
  };
  State feed(std::string_view bytes);
  State state() const { return state_; }

  Request& request() { return request_; }
  const Refusal& refusal() const { return refusal_; }
  /// Begins the next request, with the bytes that came after the last one.
  State next();

  /// Whether any byte of the request has come.
  bool has_begun() const { return !buffer_.empty() || has_head_; }
  /// Whether the client waits for "100 Continue" before it sends the body; true once.
  bool take_expectation();
  /// Bytes that are kept of requests that are not served yet.
  std::size_t kept_bytes() const { return buffer_.size() + request_.body.size(); }

 private:
  State advance();
  State refuse(int status, std::string why);
  bool parse_head(std::string_view head);
  bool parse_request_line(std::string_view line);
  bool parse_target();
  bool parse_field(std::string_view line);
  bool check_fields();
  bool check_length();

  Limits limits_;
  State state_ = State::kMore;
  std::string buffer_;        // what is not parsed yet
  std::size_t searched_ = 0;  // bytes of it in which no head ends
  bool has_head_ = false;
  bool expects_continue_ = false;
  std::size_t body_bytes_ = 0;  // of this request
  Request request_;
  Refusal refusal_;
};

}  // namespace atl::http
