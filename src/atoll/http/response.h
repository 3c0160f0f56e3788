#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl::http {

/// An answer. Content-Length, Connection and Date are the server's to add.
struct Response {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;

  /// A body of that type ("application/json").
  static Response of(std::string_view type, std::string body, int status = 200);
  /// One line of plain text: why a request was not served.
  static Response plain(int status, std::string_view line);

  Response& add(std::string name, std::string value) {
    fields.emplace_back(std::move(name), std::move(value));
    return *this;
  }
};

/// How the end of an answer's body is told.
enum class BodyEnd {
  kLength,  ///< Content-Length
  kChunks,  ///< Transfer-Encoding: chunked
  kClose,   ///< the connection ends
};

/// Status line and header lines, with the empty one. A CR, LF or NUL in a field's value becomes a
/// space: no text of a run can add a header.
std::string head_of(const Response& response, BodyEnd end, bool keeps_alive);

/// A piece of a chunked body; of an empty piece, which would end the body, nothing.
std::string chunk_of(std::string_view piece);

/// An event of a server-sent stream: its type, number and data, of any number of lines.
std::string event_text(std::string_view type, std::string_view id, std::string_view data);

}  // namespace atl::http
