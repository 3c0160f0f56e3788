#pragma once

// A client for tests: one request, one connection.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "atoll/base/processes/process.h"

namespace atl::http {

/// The whole answer of a server at a port of 127.0.0.1 to one request, head and body; `first_line`:
/// "GET /metrics"; `fields` end with CR LF each.
inline std::string ask(int port, const std::string& first_line, const std::string& fields = "",
                       const std::string& body = "", const std::string& host = "localhost") {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::string text =
      first_line + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + fields;
  if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  text += "\r\n" + body;
  EXPECT_EQ(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(text.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t count = 0; (count = ::recv(socket.get(), buffer, sizeof buffer, 0)) > 0;) {
    answer.append(buffer, static_cast<std::size_t>(count));
  }
  return answer;
}

/// The body of an answer.
inline std::string body_of(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace atl::http
