#include "atoll/http/server.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <map>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/processes/process.h"
#include "atoll/http/connection.h"
#include "atoll/http/listen.h"
#include "atoll/http/outboxes.h"

namespace atl::http {

namespace {

using Clock = Connection::Clock;
using Phase = Connection::Phase;

constexpr std::uint64_t kListener = 0;
constexpr std::uint64_t kWake = 1;
constexpr std::uint64_t kFirstConnection = 2;
constexpr int kMaxAcceptsAtOnce = 64;  // then connections that are there have their turn
constexpr std::size_t kReadBytes = 16 << 10;
constexpr int kMaxReadsAtOnce = 16;

// Signals are the business of the threads that were there before.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

void yield_to_others() {
  const sched_param none{};
  ::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &none);
}

}  // namespace

class Server::Loop {
 public:
  Loop(const ServerOptions& options, Handler handler)
      : options_(options),
        handler_(std::move(handler)),
        port_(options.port),
        listener_(listen_at(options.host, port_)),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        outboxes_(std::make_shared<Outboxes>(options.max_unread_bytes)) {
    ATOLL_CHECK(epoll_.open(), "epoll_create1 failed");
    watch(listener_.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
    watch(outboxes_->wake_fd(), kWake, EPOLLIN, EPOLL_CTL_ADD);
    thread_ = std::thread([this] {
      block_signals();
      if (options_.yields) yield_to_others();
      run();
    });
  }
  ~Loop() {
    ends_ = true;
    outboxes_->wake();
    thread_.join();
    outboxes_->close_all();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  int port() const { return port_; }
  std::size_t num_connections() const { return num_connections_; }
  bool has_unsent() const { return outboxes_->has_unsent(); }

 private:
  struct Entry {
    Fd socket;
    Connection connection;
    std::uint32_t watched = 0;
    std::size_t counted = 0;  // of its unread bytes, in total_unread_
  };

  void watch(int fd, std::uint64_t id, std::uint32_t events, int operation) const {
    epoll_event event{.events = events, .data = {.u64 = id}};
    ::epoll_ctl(epoll_.get(), operation, fd, &event);
  }

  void run() {
    std::array<epoll_event, 64> events{};
    while (!ends_) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                     milliseconds_to_wait());
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == kListener) {
          accept_new();
        } else if (event.data.u64 != kWake) {
          serve(event.data.u64, event.events);
        }
      }
      take_answers();
      end_late();
      remove_ended();
    }
  }

  // Until the first deadline; without any, until something happens.
  int milliseconds_to_wait() const {
    Clock::time_point first = Clock::time_point::max();
    for (const auto& [id, entry] : entries_) first = std::min(first, entry.connection.deadline());
    if (first == Clock::time_point::max()) return -1;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(first - Clock::now()).count() + 1;
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  }

  void accept_new() {
    for (int i = 0; i < kMaxAcceptsAtOnce; ++i) {
      Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket.open()) {
        // No descriptor is left: one of ours makes room, or the listener would wake us for ever.
        if ((errno == EMFILE || errno == ENFILE) && make_room()) continue;
        return;
      }
      const bool has_room = entries_.size() < options_.max_connections || make_room();
      if (!has_room) continue;  // all wait for answers; this one is closed
      add(std::move(socket));
    }
  }

  // Ends the connection that has been silent longest among those that nobody owes an answer.
  bool make_room() {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      const Phase phase = it->second.connection.phase();
      if (phase == Phase::kAnswering || phase == Phase::kStreaming) continue;
      if (oldest == entries_.end() ||
          it->second.connection.silent_since() < oldest->second.connection.silent_since()) {
        oldest = it;
      }
    }
    if (oldest == entries_.end()) return false;
    remove(oldest);
    return true;
  }

  void add(Fd socket) {
    const std::uint64_t id = next_id_++;
    outboxes_->open(id);
    const int fd = socket.get();
    Entry entry{.socket = std::move(socket), .connection = Connection(id, options_, Clock::now())};
    entry.watched = EPOLLIN | EPOLLRDHUP;
    watch(fd, id, entry.watched, EPOLL_CTL_ADD);
    entries_.emplace(id, std::move(entry));
    num_connections_ = entries_.size();
  }

  using Entries = std::map<std::uint64_t, Entry>;

  void remove(Entries::iterator it) {
    total_unread_ -= it->second.counted;
    outboxes_->close(it->first);
    entries_.erase(it);
    num_connections_ = entries_.size();
  }

  void serve(std::uint64_t id, std::uint32_t events) {
    const auto it = entries_.find(id);
    if (it == entries_.end()) return;
    Entry& entry = it->second;
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) read(entry);
    if ((events & (EPOLLHUP | EPOLLERR)) != 0) entry.connection.broken();
    settle(it);
  }

  void read(Entry& entry) {
    char buffer[kReadBytes];
    for (int i = 0; i < kMaxReadsAtOnce && entry.connection.wants_input(); ++i) {
      const ssize_t count = ::recv(entry.socket.get(), buffer, sizeof buffer, 0);
      if (count > 0) {
        const std::string_view bytes(buffer, static_cast<std::size_t>(count));
        if (entry.connection.receive(bytes, Clock::now())) hand_over(entry);
        continue;
      }
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
      take_answers_of(entry);  // that were given at once
      send(entry);
      entry.connection.hung_up();
      return;
    }
  }

  void hand_over(Entry& entry) {
    const Connection& connection = entry.connection;
    const Reply reply(outboxes_, connection.id(), connection.request_number());
    if (total_unread_ > options_.max_total_unread_bytes && !make_room_beside(entry)) {
      reply.send(options_.refusal(503, "too many answers wait for their readers; ask again later")
                     .add("Retry-After", "5"));
      return;
    }
    try {
      handler_(entry.connection.request(), reply);
    } catch (const std::exception& error) {
      reply.send(options_.refusal(500, error.what()));
    }
  }

  // Ends those who have not read for longest; whether there is room for another answer.
  bool make_room_beside(const Entry& asking) {
    while (total_unread_ > options_.max_total_unread_bytes) {
      Entry* slowest = nullptr;
      for (auto& [id, entry] : entries_) {
        const Phase phase = entry.connection.phase();
        const bool is_going = phase == Phase::kGone || entry.counted == 0;
        if (&entry == &asking || is_going) continue;
        const bool is_slower = slowest == nullptr || entry.connection.stalled_since() <
                                                         slowest->connection.stalled_since();
        if (is_slower) slowest = &entry;
      }
      if (slowest == nullptr) return false;
      // The caller goes through the entries: they are removed when it is done.
      total_unread_ -= std::exchange(slowest->counted, 0);
      slowest->connection.broken();
      ended_.push_back(slowest->connection.id());
    }
    return true;
  }

  void remove_ended() {
    for (const std::uint64_t id : std::exchange(ended_, {})) {
      if (const auto it = entries_.find(id); it != entries_.end()) remove(it);
    }
  }

  // What the handlers of `entry` have said already, and others with it.
  void take_answers_of(Entry& entry) {
    for (Outgoing& outgoing : outboxes_->take()) {
      if (outgoing.connection == entry.connection.id()) {
        if (entry.connection.answer(std::move(outgoing), Clock::now())) hand_over(entry);
      } else {
        later_.push_back(std::move(outgoing));
      }
    }
  }

  void take_answers() {
    // An answer may bring the next request to its handler, which answers at once: pipelining.
    constexpr int kMaxTurns = 64;
    for (int turn = 0; turn < kMaxTurns; ++turn) {
      std::vector<Outgoing> list = std::exchange(later_, {});
      for (Outgoing& outgoing : outboxes_->take()) list.push_back(std::move(outgoing));
      if (list.empty()) return;
      for (Outgoing& outgoing : list) {
        const auto it = entries_.find(outgoing.connection);
        if (it == entries_.end()) continue;
        if (outboxes_->is_too_slow(outgoing.connection)) {
          remove(it);
          continue;
        }
        Entry& entry = it->second;
        if (entry.connection.answer(std::move(outgoing), Clock::now())) hand_over(entry);
        settle(it);
      }
    }
    outboxes_->wake();
  }

  void send(Entry& entry) {
    while (!entry.connection.unsent().empty()) {
      const std::string_view bytes = entry.connection.unsent();
      const ssize_t count = ::send(entry.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) {
        entry.connection.sent(static_cast<std::size_t>(count), Clock::now());
        continue;
      }
      if (errno == EINTR) continue;
      if (errno != EAGAIN) entry.connection.broken();
      return;
    }
  }

  // Sends what can be sent, closes what is over, and watches for what comes next.
  void settle(Entries::iterator it) {
    Entry& entry = it->second;
    const Phase before = entry.connection.phase();
    send(entry);
    if (entry.connection.take_next(Clock::now())) hand_over(entry);
    const Phase phase = entry.connection.phase();
    if (phase == Phase::kGone) {
      remove(it);
      return;
    }
    if (phase == Phase::kLingering && before != Phase::kLingering) {
      ::shutdown(entry.socket.get(), SHUT_WR);
    }
    const std::size_t unread = entry.connection.unsent().size();
    total_unread_ += unread - entry.counted;
    entry.counted = unread;
    outboxes_->set_unread(it->first, unread);
    const std::uint32_t wanted =
        (entry.connection.wants_input() ? EPOLLIN | EPOLLRDHUP : 0U) | (unread > 0 ? EPOLLOUT : 0U);
    if (wanted == entry.watched) return;
    entry.watched = wanted;
    watch(entry.socket.get(), it->first, wanted, EPOLL_CTL_MOD);
  }

  void end_late() {
    const Clock::time_point now = Clock::now();
    for (auto it = entries_.begin(); it != entries_.end();) {
      const auto next = std::next(it);
      if (it->second.connection.deadline() <= now) {
        it->second.connection.late();
        settle(it);
      }
      it = next;
    }
  }

  const ServerOptions options_;
  const Handler handler_;
  int port_;
  Fd listener_;
  Fd epoll_;
  std::shared_ptr<Outboxes> outboxes_;  // replies may outlive the server
  Entries entries_;
  std::vector<Outgoing> later_;
  std::vector<std::uint64_t> ended_;  // that made room, and are to be removed
  std::uint64_t next_id_ = kFirstConnection;
  std::size_t total_unread_ = 0;
  std::atomic<std::size_t> num_connections_ = 0;
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

Server::Server(const ServerOptions& options, Handler handler)
    : loop_(std::make_unique<Loop>(options, std::move(handler))) {}

Server::~Server() = default;

int Server::port() const {
  return loop_->port();
}

std::size_t Server::num_connections() const {
  return loop_->num_connections();
}

bool Server::has_unsent() const {
  return loop_->has_unsent();
}

}  // namespace atl::http
