#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl::http {

/// What a request may have at most.
struct Limits {
  std::size_t target_bytes = 8 << 10;
  std::size_t head_bytes = 16 << 10;  ///< request line and header lines
  std::size_t num_fields = 64;
  std::size_t body_bytes = 8 << 20;
};

/// One request, whole. Its strings are bytes of a stranger.
struct Request {
  std::string method;  ///< "GET"
  std::string target;  ///< as it came, in origin form: "/api/runs?since=4"
  std::string path;    ///< the target's path without escapes: "/api/runs"
  int minor_version = 1;
  std::vector<std::pair<std::string, std::string>> fields;  ///< names in lower case
  /// The target's query, without escapes, in its order.
  std::vector<std::pair<std::string, std::string>> parameters;
  std::string body;
  bool keeps_alive = true;  ///< whether the client wants to send more requests

  /// The first header field of that name (lower case); null: there is none.
  const std::string* field(std::string_view name) const;
  /// The first parameter of that name; null: there is none.
  const std::string* parameter(std::string_view name) const;
  /// The value of a cookie; null: there is none.
  std::optional<std::string> cookie(std::string_view name) const;
};

/// Replaces %XX; also '+' by a space where `is_form`. Nothing where an escape is not one, or the
/// text would hold a NUL byte.
std::optional<std::string> unescape(std::string_view text, bool is_form);

}  // namespace atl::http
