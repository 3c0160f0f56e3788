#include "atoll/http/listen.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "atoll/base/error.h"

namespace atl::http {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses look_up(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) {
    throw user_error("cannot listen at {}:{}: {}", host, port, ::gai_strerror(code));
  }
  return {list, &::freeaddrinfo};
}

int port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

}  // namespace

Fd listen_at(const std::string& host, int& port) {
  int reason = 0;
  const Addresses list = look_up(host, port);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    Fd fd(::socket(one->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (fd.open()) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd.open() && ::bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        ::listen(fd.get(), SOMAXCONN) == 0) {
      port = port_of(fd.get());
      return fd;
    }
    reason = errno;
  }
  const char* advice = reason == EADDRINUSE
                           ? "another program listens there; give another port, or 0 for a free one"
                       : reason == EACCES ? "ports below 1024 are the administrator's"
                                          : "give an address of this machine";
  throw user_error("cannot listen at {}:{}: {}; {}", host, port, std::strerror(reason), advice);
}

}  // namespace atl::http
