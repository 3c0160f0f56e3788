#include "atoll/comm/rendezvous/rendezvous_wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace atl::comm::rendezvous {

namespace {

constexpr auto kRetry = std::chrono::milliseconds(50);

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int code = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
  if (code != 0) {
    throw user_error(
        "rendezvous tcp://{}:{}: the host cannot be found: {}; give a name or an address of it "
        "that "
        "this machine knows, as --rendezvous=tcp://NAME:{}",
        host, port, ::gai_strerror(code), port);
  }
  return {found, &::freeaddrinfo};
}

int left_ms(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1 << 30));
}

/// Waits for the socket; false when the deadline came first.
bool ready(const Socket& socket, short what, Clock::time_point deadline) {
  pollfd one{socket.fd(), what, 0};
  for (;;) {
    const int n = ::poll(&one, 1, left_ms(deadline));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

/// One try; the errno it ended with, 0 when connected.
int try_connect(const addrinfo& address, Clock::time_point deadline, Socket& socket) {
  socket = Socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno;
  if (::connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!ready(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}
Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

RendezvousAddress parse_tcp(const std::string& address) {
  constexpr std::string_view kScheme = "tcp://";
  const std::size_t colon = address.rfind(':');
  RendezvousAddress result;
  if (address.starts_with(kScheme) && colon > kScheme.size()) {
    result.host = address.substr(kScheme.size(), colon - kScheme.size());
    if (result.host.size() > 2 && result.host.front() == '[' && result.host.back() == ']')
      result.host = result.host.substr(1, result.host.size() - 2);
    const char* end = address.data() + address.size();
    const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, result.port);
    if (error == std::errc() && stop == end && result.port > 0 && result.port <= 65535)
      return result;
  }
  throw user_error("rendezvous {}: give tcp://HOST:PORT or file:///DIRECTORY", address);
}

Socket listen_on(const std::string& host, int port) {
  const Addresses addresses = resolve(host, port, AI_PASSIVE);
  int problem = 0;
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    Socket socket(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (socket && ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(socket.fd(), address->ai_addr, address->ai_addrlen) == 0 &&
        ::listen(socket.fd(), 1024) == 0)
      return socket;
    problem = errno;
  }
  throw user_error(
      "cannot serve the rendezvous tcp://{}:{}: {}; choose another port or an address "
      "of this host",
      host, port, std::strerror(problem));
}

Socket connect_to(const RendezvousAddress& target, Clock::time_point deadline) {
  const Addresses addresses = resolve(target.host, target.port, 0);
  for (;;) {
    int problem = ETIMEDOUT;
    for (const addrinfo* address = addresses.get(); address != nullptr;
         address = address->ai_next) {
      Socket socket;
      problem = try_connect(*address, deadline, socket);
      if (problem != 0) continue;
      const int on = 1;
      ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      return socket;
    }
    // The server may start a little later than this process.
    if (Clock::now() + kRetry >= deadline)
      throw user_error(
          "nobody serves a rendezvous at tcp://{}:{}: {}; check the address, and that "
          "its host lets this one in",
          target.host, target.port, std::strerror(problem));
    std::this_thread::sleep_for(kRetry);
  }
}

namespace {

bool own_name(const Socket& socket, sockaddr_storage& name, socklen_t& size) {
  size = sizeof(name);
  return ::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&name), &size) == 0;
}

}  // namespace

int port_of(const Socket& socket) {
  sockaddr_storage name{};
  socklen_t size = 0;
  if (!own_name(socket, name, size)) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<sockaddr_in&>(name).sin_port);
}

std::string local_address_of(const Socket& socket) {
  sockaddr_storage name{};
  socklen_t size = 0;
  char host[NI_MAXHOST] = {};
  if (!own_name(socket, name, size) || ::getnameinfo(reinterpret_cast<sockaddr*>(&name), size, host,
                                                     sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return host;
}

void send_all(const Socket& socket, std::string_view bytes, Clock::time_point deadline,
              const std::string& who) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN)
      throw make_error(ErrorKind::kPeer, "{}: {}", who, std::strerror(errno));
    if (!ready(socket, POLLOUT, deadline))
      throw make_error(ErrorKind::kPeer, "{} does not answer", who);
  }
}

std::string receive_all(const Socket& socket, std::size_t bytes, Clock::time_point deadline,
                        const std::string& who) {
  std::string all(bytes, '\0');
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::recv(socket.fd(), all.data() + done, bytes - done, 0);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
      continue;
    }
    if (n == 0) throw make_error(ErrorKind::kPeer, "{} closed the connection", who);
    if (errno == EINTR) continue;
    if (errno != EAGAIN) throw make_error(ErrorKind::kPeer, "{}: {}", who, std::strerror(errno));
    if (!ready(socket, POLLIN, deadline))
      throw make_error(ErrorKind::kPeer, "{} does not answer", who);
  }
  return all;
}

std::string frame_of(std::string_view payload) {
  std::string frame;
  for (int shift = 0; shift < 32; shift += 8)
    frame.push_back(static_cast<char>(payload.size() >> shift));
  return frame.append(payload);
}

std::uint32_t read_length(std::string_view four) {
  std::uint32_t length = 0;
  for (int i = 3; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(four[static_cast<std::size_t>(i)]);
  return length;
}

}  // namespace atl::comm::rendezvous
