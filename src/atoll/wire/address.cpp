#include "atoll/wire/address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>

#include "atoll/base/error.h"
#include "atoll/wire/identity.h"

namespace atl::wire {

namespace {

bool is_loopback_address(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto* ip = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return (ntohl(ip->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* ip = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return IN6_IS_ADDR_LOOPBACK(&ip->sin6_addr);
}

}  // namespace

HostPort parse_address(const std::string& text, const char* what) {
  const std::size_t colon = text.rfind(':');
  HostPort address;
  bool ok = colon != std::string::npos && colon > 0;
  if (ok) {
    address.host = text.substr(0, colon);
    const char* end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    ok = error == std::errc() && last == end && address.port >= 0 && address.port <= 65535;
    if (address.host.front() == '[' && address.host.back() == ']') {
      address.host = address.host.substr(1, address.host.size() - 2);
    } else {
      ok = ok && address.host.find(':') == std::string::npos;
    }
    ok = ok && !address.host.empty() &&
         std::all_of(address.host.begin(), address.host.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
         });
  }
  if (!ok) {
    throw user_error("{} is \"{}\"; it must be HOST:PORT, as lyon.example.org:4711 or [::1]:4711",
                     what, text);
  }
  return address;
}

std::string to_string(const HostPort& address) {
  return address.host.find(':') == std::string::npos
             ? fmt::format("{}:{}", address.host, address.port)
             : fmt::format("[{}]:{}", address.host, address.port);
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = {};
  const auto* address = reinterpret_cast<const sockaddr*>(&storage);
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text;
}

std::vector<SocketAddress> resolve(const HostPort& address, std::string* why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  std::vector<SocketAddress> all;
  if (code != 0) {
    if (why != nullptr) *why = gai_strerror(code);
    return all;
  }
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& one = all.emplace_back();
    std::copy_n(reinterpret_cast<const char*>(entry->ai_addr), entry->ai_addrlen,
                reinterpret_cast<char*>(&one.storage));
    one.size = entry->ai_addrlen;
  }
  freeaddrinfo(found);
  return all;
}

bool is_loopback(const std::string& host) {
  if (host.empty()) return false;
  const std::vector<SocketAddress> all = resolve({host, 0}, nullptr);
  return !all.empty() && std::all_of(all.begin(), all.end(), is_loopback_address);
}

}  // namespace atl::wire
