#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace atl::wire {

/// HOST:PORT taken apart; an IPv6 host stands in brackets there and without them here.
struct HostPort {
  std::string host;
  int port = 0;
};

/// Throws Error(kUser) naming `what` ("the address to listen at") unless it is HOST:PORT.
HostPort parse_address(const std::string& text, const char* what);
/// The text again, with brackets where the host has colons.
std::string to_string(const HostPort& address);

/// One of the addresses of a host.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  /// "127.0.0.1", "::1"
  std::string host() const;
};

/// What a host's name stands for; empty with the resolver's words in `why` (may be null) if
/// nothing.
std::vector<SocketAddress> resolve(const HostPort& address, std::string* why);

}  // namespace atl::wire
