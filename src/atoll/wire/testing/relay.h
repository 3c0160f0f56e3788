#pragma once

// A link between a client and a server on this machine that is as bad as is wanted: `netem` is not
// everywhere, and no test should need the rights to use it.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "atoll/base/check.h"

namespace atl::wire::test {

/// What a link does to what passes.
struct LinkOptions {
  double delay_ms = 0;          ///< one way
  double bytes_per_second = 0;  ///< each way, all connections together; 0: unlimited
  std::uint64_t seed = 1;       ///< of what is garbled
  std::size_t buffer_bytes = std::size_t{32} << 20;  ///< of each connection, each way
};

/// Listens at a port of loopback and passes everything on to another. Delay and rate are those of
/// the link; the faults can be changed at any time and count bytes from server to client.
class Relay {
 public:
  Relay(const std::string& target, const LinkOptions& options)
      : options_(options), target_(parse(target)), random_(options.seed) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here = parse("127.0.0.1:0");
    socklen_t size = sizeof here;
    auto* where = reinterpret_cast<sockaddr*>(&here);
    ATOLL_CHECK(::bind(listener_, where, size) == 0 && ::listen(listener_, 64) == 0 &&
                ::getsockname(listener_, where, &size) == 0);
    port_ = ntohs(here.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Relay() {
    is_stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    cut();
    connections_.clear();
    ::close(listener_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  /// Breaks every connection that there is.
  void cut() {
    const std::lock_guard lock(mutex_);
    for (const auto& connection : connections_) connection->cut();
  }
  /// Each connection breaks after it has carried so many bytes; 0: never.
  void cut_after(std::uint64_t bytes) { cut_after_ = bytes; }
  /// In each connection one bit flips in every so many bytes; 0: none does.
  void garble_every(std::uint64_t bytes) { garble_every_ = bytes; }
  /// From now on nothing gets through, either way, and nobody is told.
  void freeze() { is_frozen_ = true; }
  /// The first so many connections end as soon as they are made.
  void hang_up_on(int connections) { hang_up_on_ = connections; }
  /// Connections so far.
  int num_connections() const { return num_connections_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };

  // Both ways of a link share one of these each.
  struct Wire {
    std::mutex mutex;
    Clock::time_point free_at{};
  };

  // One way of a connection: a thread takes bytes in, another gives them out when they are due.
  class Pipe {
   public:
    Pipe(Relay& relay, Wire& wire, int from, int to, bool has_faults)
        : relay_(relay), wire_(wire), from_(from), to_(to), has_faults_(has_faults) {
      taker_ = std::thread([this] { take(); });
      giver_ = std::thread([this] { give(); });
    }
    ~Pipe() {
      taker_.join();
      giver_.join();
    }

   private:
    void take() {
      std::string buffer(std::size_t{64} << 10, '\0');
      for (;;) {
        const ssize_t got = ::recv(from_, buffer.data(), buffer.size(), 0);
        if (got <= 0) break;
        if (relay_.is_frozen_) continue;
        Piece piece{relay_.due(wire_, static_cast<std::size_t>(got)),
                    buffer.substr(0, static_cast<std::size_t>(got))};
        if (has_faults_ && !harm(piece.bytes)) break;
        std::unique_lock lock(mutex_);
        changed_.wait(lock,
                      [&] { return is_broken_ || waiting_bytes_ < relay_.options_.buffer_bytes; });
        if (is_broken_) break;
        waiting_bytes_ += piece.bytes.size();
        pieces_.push_back(std::move(piece));
        changed_.notify_all();
      }
      const std::lock_guard lock(mutex_);
      is_ended_ = true;
      changed_.notify_all();
    }

    void give() {
      for (;;) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return is_ended_ || !pieces_.empty(); });
        if (pieces_.empty()) break;
        const Piece piece = std::move(pieces_.front());
        pieces_.pop_front();
        lock.unlock();
        std::this_thread::sleep_until(piece.due);  // this is the delay, not a wait for something
        if (!send_all(piece.bytes)) break;
        lock.lock();
        waiting_bytes_ -= piece.bytes.size();
        changed_.notify_all();
      }
      ::shutdown(to_, SHUT_WR);
      const std::lock_guard lock(mutex_);
      is_broken_ = true;
      changed_.notify_all();
    }

    bool send_all(const std::string& bytes) const {
      std::size_t sent = 0;
      while (sent < bytes.size()) {
        const ssize_t n = ::send(to_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) return false;
        sent += static_cast<std::size_t>(n);
      }
      return true;
    }

    // Returns false when the connection ends here.
    bool harm(std::string& bytes) {
      const std::uint64_t begin = passed_;
      passed_ += bytes.size();
      const std::uint64_t every = relay_.garble_every_;
      if (every != 0 && begin / every != passed_ / every) {
        const std::uint64_t random = relay_.next_random();
        bytes[random % bytes.size()] ^= static_cast<char>(1 << (random >> 32) % 8);
      }
      const std::uint64_t most = relay_.cut_after_;
      if (most == 0 || passed_ <= most) return true;
      ::shutdown(from_, SHUT_RDWR);
      ::shutdown(to_, SHUT_RDWR);
      return false;
    }

    Relay& relay_;
    Wire& wire_;
    const int from_, to_;
    const bool has_faults_;
    std::uint64_t passed_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Piece> pieces_;
    std::size_t waiting_bytes_ = 0;
    bool is_ended_ = false;   // nothing more comes
    bool is_broken_ = false;  // nothing more can be given
    std::thread taker_, giver_;
  };

  class Connection {
   public:
    Connection(Relay& relay, int client, int server)
        : client_(client),
          server_(server),
          up_(std::make_unique<Pipe>(relay, relay.up_, client, server, false)),
          down_(std::make_unique<Pipe>(relay, relay.down_, server, client, true)) {}
    ~Connection() {
      cut();
      up_.reset();
      down_.reset();
      ::close(client_);
      ::close(server_);
    }
    void cut() const {
      ::shutdown(client_, SHUT_RDWR);
      ::shutdown(server_, SHUT_RDWR);
    }

   private:
    int client_, server_;
    std::unique_ptr<Pipe> up_, down_;
  };

  static sockaddr_in parse(const std::string& address) {
    const std::size_t colon = address.rfind(':');
    sockaddr_in parsed{};
    parsed.sin_family = AF_INET;
    parsed.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
    ATOLL_CHECK(inet_pton(AF_INET, address.substr(0, colon).c_str(), &parsed.sin_addr) == 1);
    return parsed;
  }

  void accept_all() {
    while (!is_stopping_) {
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      if (num_connections_ < hang_up_on_) {
        ::close(client);
        ++num_connections_;
        continue;
      }
      const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (::connect(server, reinterpret_cast<const sockaddr*>(&target_), sizeof target_) != 0) {
        ::close(client);
        ::close(server);
        continue;
      }
      const int on = 1;
      for (const int fd : {client, server}) {
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      }
      ++num_connections_;
      const std::lock_guard lock(mutex_);
      connections_.push_back(std::make_unique<Connection>(*this, client, server));
    }
  }

  // When bytes that come now are through: after those before them, at the link's rate, and later.
  Clock::time_point due(Wire& wire, std::size_t bytes) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    const auto delay = std::chrono::duration_cast<Clock::duration>(Milliseconds(options_.delay_ms));
    const Clock::time_point now = Clock::now();
    if (options_.bytes_per_second <= 0) return now + delay;
    const std::lock_guard lock(wire.mutex);
    wire.free_at = std::max(wire.free_at, now) +
                   std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                       static_cast<double>(bytes) / options_.bytes_per_second));
    return wire.free_at + delay;
  }

  std::uint64_t next_random() {
    const std::lock_guard lock(mutex_);
    return random_();
  }

  const LinkOptions options_;
  const sockaddr_in target_;
  std::mt19937_64 random_;
  int listener_ = -1;
  int port_ = 0;
  Wire up_, down_;
  std::atomic<std::uint64_t> cut_after_{0};
  std::atomic<std::uint64_t> garble_every_{0};
  std::atomic<int> num_connections_{0};
  std::atomic<int> hang_up_on_{0};
  std::atomic<bool> is_frozen_{false};
  std::atomic<bool> is_stopping_{false};
  std::mutex mutex_;
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread acceptor_;
};

}  // namespace atl::wire::test
