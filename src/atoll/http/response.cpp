#include "atoll/http/response.h"

#include <fmt/format.h>

namespace atl::http {

namespace {

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::string one_line(std::string_view value) {
  std::string line(value);
  for (char& c : line) {
    if (c == '\r' || c == '\n' || c == '\0') c = ' ';
  }
  return line;
}

}  // namespace

Response Response::of(std::string_view type, std::string body, int status) {
  Response response{.status = status, .body = std::move(body)};
  response.add("Content-Type", std::string(type));
  return response;
}

Response Response::plain(int status, std::string_view line) {
  return of("text/plain; charset=utf-8", one_line(line) + "\n", status);
}

std::string head_of(const Response& response, BodyEnd end, bool keeps_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_of(response.status));
  for (const auto& [name, value] : response.fields) {
    head += fmt::format("{}: {}\r\n", name, one_line(value));
  }
  if (end == BodyEnd::kLength && response.status != 204 && response.status != 304) {
    head += fmt::format("Content-Length: {}\r\n", response.body.size());
  }
  if (end == BodyEnd::kChunks) head += "Transfer-Encoding: chunked\r\n";
  return head + (keeps_alive ? "\r\n" : "Connection: close\r\n\r\n");
}

std::string chunk_of(std::string_view piece) {
  if (piece.empty()) return "";
  return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
}

std::string event_text(std::string_view type, std::string_view id, std::string_view data) {
  std::string text;
  if (!id.empty()) text += fmt::format("id: {}\n", one_line(id));
  if (!type.empty()) text += fmt::format("event: {}\n", one_line(type));
  // A stream's reader takes CR, LF and CR LF as ends of lines.
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = data.find_first_of("\r\n", begin);
    text += fmt::format("data: {}\n", data.substr(begin, end - begin));
    if (end == data.npos) break;
    begin = end + (data.substr(end).starts_with("\r\n") ? 2 : 1);
  }
  return text + "\n";
}

}  // namespace atl::http
