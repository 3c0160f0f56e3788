#include "atoll/comm/tcp/connections.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "atoll/comm/world.h"

namespace atl::comm::tcp {

namespace {

using rendezvous::Clock;
using rendezvous::RendezvousAddress;
using rendezvous::Socket;

// How long a new connection may take to send its Hello, and how many may be waited for at a time.
constexpr auto kHelloTime = std::chrono::seconds(5);
constexpr std::size_t kMaxPending = 256;
// Buffers of all connections within a host together. On busy cores a rank works on the bytes in its
// buffers while its peer waits for a core; larger buffers would not stay in the cache. Between two
// hosts the system chooses the size from bandwidth and delay.
constexpr int kLoopbackBuffers = 4 << 20, kLeastBuffer = 256 << 10;

/// The first message of both ends of a connection.
struct Hello {
  char magic[8] = {'a', 't', 'l', '-', 't', 'c', 'p', '1'};
  char rendezvous_id[48] = {};
  std::int32_t from = 0;
  std::int32_t to = 0;
};
static_assert(sizeof(Hello) == 64);

/// A connection that has not sent all of its Hello.
struct PendingConnection {
  Socket socket;
  Clock::time_point until;
  Hello hello;
  std::size_t come = 0;
};

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

int left_ms(Clock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1 << 30));
}

std::string peer_address_of(const Socket& socket) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  char host[NI_MAXHOST] = {};
  auto* address = reinterpret_cast<sockaddr*>(&name);
  if (::getpeername(socket.fd(), address, &size) != 0 ||
      ::getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return host;
}

/// The congestion control of a socket, "bbr" for example; empty: the system does not say.
std::string congestion_of(const Socket& socket) {
  char name[16] = {};
  socklen_t size = sizeof(name) - 1;
  return ::getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 ? name : "";
}

// Where the system does not have or allow it, its default stays: slower, not wrong.
void set_congestion(const Socket& socket, const std::string& name) {
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
               static_cast<socklen_t>(name.size()));
}

// Pacing only slows connections within a host. A socket that was connected with BBR stays paced
// whatever is set later, so this is set before connecting.
constexpr char kWithinHost[] = "reno";

void tune(const Socket& socket, bool within_host, int num_peers) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (!within_host) return;
  const int bytes = std::max(kLoopbackBuffers / num_peers, kLeastBuffer);
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

/// The errno that one try ends with, 0 when connected.
int connect_once(const RendezvousAddress& target, bool within_host, Clock::time_point end,
                 Socket& socket) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (::getaddrinfo(target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found) != 0)
    return EADDRNOTAVAIL;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> address(found, &::freeaddrinfo);
  socket = Socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno;
  if (within_host) set_congestion(socket, kWithinHost);
  if (::connect(socket.fd(), found->ai_addr, found->ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd one{socket.fd(), POLLOUT, 0};
  int n = 0;
  do {
    n = ::poll(&one, 1, left_ms(end));
  } while (n < 0 && errno == EINTR);
  if (n == 0) return ETIMEDOUT;
  int problem = 0;
  socklen_t size = sizeof(problem);
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &problem, &size);
  return problem;
}

/// Makes one rank's connections: it connects to the lower ranks and accepts the higher ones.
class Connector {
 public:
  Connector(Rendezvous& rendezvous, const std::string& rendezvous_id, const TcpOptions& tcp,
            std::span<const int> members, double timeout_s)
      : rendezvous_(rendezvous),
        rendezvous_id_(rendezvous_id),
        tcp_(tcp),
        members_(members),
        timeout_s_(timeout_s),
        end_(Clock::now() + std::chrono::milliseconds(
                                static_cast<long>(std::clamp(timeout_s, 0.001, 3.2e7) * 1000))),
        connections_(static_cast<std::size_t>(tcp.size)) {
    for (const int r : members)
      if (r > tcp.rank) missing_.insert(r);
  }

  Connections run() {
    listen();
    for (const int peer : members_)
      if (peer < tcp_.rank) call(peer);
    while (!missing_.empty()) receive();
    for (const int peer : members_)
      if (peer < tcp_.rank) check_answer(peer);
    return {std::move(connections_), local_ranks_};
  }

 private:
  std::string key(int rank) const { return fmt::format("{}/tcp/{}", rendezvous_id_, rank); }
  Socket& link(int peer) { return connections_[static_cast<std::size_t>(peer)]; }

  Hello hello_to(int peer) const {
    Hello hello;
    std::memcpy(hello.rendezvous_id, rendezvous_id_.data(),
                std::min(rendezvous_id_.size(), sizeof(hello.rendezvous_id)));
    hello.from = tcp_.rank;
    hello.to = peer;
    return hello;
  }
  /// Whether `hello` is what `peer` says to this rank.
  bool comes_from(int peer, const Hello& hello) const {
    Hello expected = hello_to(tcp_.rank);
    expected.from = peer;
    return std::memcmp(&expected, &hello, sizeof(Hello)) == 0;
  }

  void listen() {
    std::string address = tcp_.address.empty() ? rendezvous_.local_address() : tcp_.address;
    if (address.empty()) address = host_name();
    try {
      listener_ = rendezvous::listen_on(address, 0);
    } catch (const Error&) {
      throw user_error("rank {} cannot be reached at {}: that is no address of this host; give one",
                       tcp_.rank, address);
    }
    host_ = rendezvous::local_address_of(listener_);
    congestion_ = congestion_of(listener_);
    set_congestion(listener_, kWithinHost);  // accepted connections inherit it
    rendezvous_.set(key(tcp_.rank),
                    fmt::format("tcp://{}:{}", host_, rendezvous::port_of(listener_)));
  }

  void call(int peer) {
    const double left = std::chrono::duration<double>(end_ - Clock::now()).count();
    const std::string address = rendezvous_.wait(key(peer), left);
    Socket& socket = link(peer);
    const RendezvousAddress target = rendezvous::parse_tcp(address);
    const bool within_host = target.host == host_;
    const int problem = connect_once(target, within_host, end_, socket);
    if (problem != 0)
      throw PeerError(peer, fmt::format("rank {} cannot reach rank {} at {}: {}", tcp_.rank, peer,
                                        address, std::strerror(problem)));
    prepare(socket, within_host);
    say_hello(peer);
  }

  void prepare(const Socket& socket, bool within_host) {
    tune(socket, within_host, static_cast<int>(members_.size()) - 1);
    local_ranks_ += within_host ? 1 : 0;
  }

  void say_hello(int peer) {
    const Hello hello = hello_to(peer);
    try {
      rendezvous::send_all(link(peer), {reinterpret_cast<const char*>(&hello), sizeof(hello)}, end_,
                           fmt::format("rank {}", peer));
    } catch (const Error& error) {
      throw PeerError(peer, error.what());
    }
  }

  void check_answer(int peer) {
    Hello hello;
    try {
      const std::string bytes =
          rendezvous::receive_all(link(peer), sizeof(Hello), end_, fmt::format("rank {}", peer));
      std::memcpy(&hello, bytes.data(), sizeof(hello));
    } catch (const Error& error) {
      throw PeerError(peer, error.what());
    }
    if (!comes_from(peer, hello))
      throw PeerError(peer, fmt::format("what rank {} finds where rank {} should be is no rank of "
                                        "this run",
                                        tcp_.rank, peer));
  }

  void receive() {
    const Clock::time_point now = Clock::now();
    if (now >= end_)
      throw PeerError(*missing_.begin(),
                      fmt::format("rank{} {} of {} did not connect to rank {} within {} s",
                                  missing_.size() > 1 ? "s" : "", fmt::join(missing_, ", "),
                                  tcp_.size, tcp_.rank, timeout_s_));
    std::erase_if(pending_,
                  [&](const PendingConnection& s) { return !s.socket || now >= s.until; });
    Clock::time_point until = end_;
    std::vector<pollfd> descriptors = {
        {listener_.fd(), static_cast<short>(pending_.size() < kMaxPending ? POLLIN : 0), 0}};
    for (const PendingConnection& pending : pending_) {
      descriptors.push_back({pending.socket.fd(), POLLIN, 0});
      until = std::min(until, pending.until);
    }
    if (::poll(descriptors.data(), descriptors.size(), left_ms(until) + 1) <= 0) return;
    for (std::size_t i = 1; i < descriptors.size(); ++i)
      if (descriptors[i].revents != 0) listen_to(pending_[i - 1]);
    if (descriptors[0].revents != 0) accept_one();
  }

  void accept_one() {
    Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) pending_.push_back({std::move(socket), Clock::now() + kHelloTime, {}, 0});
  }

  /// Reads from a new connection. Drops it when it closes or sends another Hello than a missing
  /// rank would; keeps it as that rank's connection when the Hello is right.
  void listen_to(PendingConnection& pending) {
    auto* to = reinterpret_cast<char*>(&pending.hello) + pending.come;
    const ssize_t n = ::recv(pending.socket.fd(), to, sizeof(Hello) - pending.come, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) pending.come += static_cast<std::size_t>(n);
    if (n > 0 && pending.come < sizeof(Hello)) return;
    Socket socket = std::move(pending.socket);
    const int peer = pending.hello.from;
    if (n <= 0 || !comes_from(peer, pending.hello) || missing_.erase(peer) == 0) return;
    link(peer) = std::move(socket);
    const bool within_host = peer_address_of(link(peer)) == host_;
    if (!within_host) set_congestion(link(peer), congestion_);
    prepare(link(peer), within_host);
    say_hello(peer);
  }

  Rendezvous& rendezvous_;
  const std::string& rendezvous_id_;
  const TcpOptions& tcp_;
  std::span<const int> members_;
  double timeout_s_;
  Clock::time_point end_;
  Socket listener_;
  std::string host_;        // the address that other ranks connect to
  std::string congestion_;  // the system's own choice
  std::set<int> missing_;   // higher ranks that have not connected yet
  std::vector<PendingConnection> pending_;
  std::vector<Socket> connections_;
  int local_ranks_ = 1;
};

}  // namespace

Connections connect_all(Rendezvous& rendezvous, const std::string& rendezvous_id,
                        const TcpOptions& tcp, std::span<const int> members, double timeout_s) {
  return Connector(rendezvous, rendezvous_id, tcp, members, timeout_s).run();
}

}  // namespace atl::comm::tcp
