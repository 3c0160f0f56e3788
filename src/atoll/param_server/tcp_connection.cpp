#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/param_server/messages.h"
#include "atoll/param_server/tcp_link.h"
#include "atoll/param_server/tcp_transport.h"
#include "atoll/param_server/waker.h"
#include "atoll/wire/address.h"

namespace atl::param_server {

namespace {

using comm::rendezvous::Socket;
using Clock = TcpLink::Clock;

constexpr auto kConnectTime = std::chrono::seconds(5);
constexpr int kTickMs = 200;  // for signs of life
// Between two attempts: doubles from one to the next.
constexpr double kLeastBackoffMs = 100, kMostBackoffMs = 500;

class TcpConnection final : public Connection {
 public:
  TcpConnection(const std::string& address, std::optional<wire::Secret> secret,
                wire::Session::Events events)
      : address_(address),
        target_(wire::parse_address(address, "the address to connect to")),
        secret_(std::move(secret)),
        events_(std::move(events)),
        thread_([this] { run(); }) {}
  ~TcpConnection() override;

  bool send(std::string& frame) override;
  bool finish(int timeout_ms) override;

 private:
  // How an attempt, or the connection that it made, has ended.
  struct End {
    std::string why;
    bool is_final = false;
  };

  void run();
  End attend();
  Socket connect(std::string& why);
  int connect_once(const wire::SocketAddress& address, Clock::time_point until, Socket& socket);
  End exchange(TcpLink& link);
  bool take_queue(TcpLink& link);
  void deliver(TcpLink& link, std::vector<std::string>& messages);
  void report(const End& end);
  bool pause(double milliseconds);
  bool stops();

  const std::string address_;
  const wire::HostPort target_;
  const std::optional<wire::Secret> secret_;
  const wire::Session::Events events_;
  Waker waker_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;  // with those that the link has not sent
  bool is_connected_ = false;
  bool was_connected_ = false;  // since the last disconnected()
  bool is_finishing_ = false;
  bool is_finished_ = false;  // and the other side has read all
  bool is_stopping_ = false;
  bool has_ended_ = false;  // the thread is done
  std::string last_problem_;
  std::thread thread_;  // last: it uses the others
};

TcpConnection::~TcpConnection() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  waker_.wake();
  thread_.join();
}

bool TcpConnection::send(std::string& frame) {
  ATOLL_CHECK(frame.size() <= kMaxFrame, "a frame of {} bytes", frame.size());
  {
    const std::lock_guard lock(mutex_);
    const bool is_full = queued_bytes_ + frame.size() > kConnectionQueueBytes;
    if (!is_connected_ || is_finishing_ || is_full) return false;
    queued_bytes_ += frame.size();
    queue_.push_back(std::move(frame));
  }
  waker_.wake();
  return true;
}

bool TcpConnection::finish(int timeout_ms) {
  std::unique_lock lock(mutex_);
  is_finishing_ = true;
  changed_.notify_all();
  waker_.wake();
  changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return has_ended_; });
  return is_finished_;
}

bool TcpConnection::stops() {
  const std::lock_guard lock(mutex_);
  return is_stopping_ || is_finishing_;
}

// Returns whether it goes on.
bool TcpConnection::pause(double milliseconds) {
  std::unique_lock lock(mutex_);
  const auto time = std::chrono::duration<double, std::milli>(milliseconds);
  return !changed_.wait_for(lock, time, [&] { return is_stopping_ || is_finishing_; });
}

void TcpConnection::run() {
  std::minstd_rand random(std::random_device{}());
  double backoff = kLeastBackoffMs;
  for (;;) {
    const End end = attend();
    {
      const std::lock_guard lock(mutex_);
      is_connected_ = false;
      if (was_connected_) backoff = kLeastBackoffMs;
    }
    report(end);
    // Half of it is random, so that not all return to a restarted server at once.
    const double share = std::uniform_real_distribution<>(0.5, 1.0)(random);
    if (end.is_final || !pause(backoff * share)) break;
    backoff = std::min(2 * backoff, kMostBackoffMs);
  }
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  changed_.notify_all();
}

void TcpConnection::report(const End& end) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_ || is_finishing_) return;
    if (!was_connected_ && !end.is_final && end.why == last_problem_) return;
    last_problem_ = end.why;
    was_connected_ = false;
  }
  if (events_.disconnected) events_.disconnected(end.why, end.is_final);
}

// One connection, from its beginning to its end.
TcpConnection::End TcpConnection::attend() {
  std::string why;
  Socket socket = connect(why);
  if (!socket) return {fmt::format("cannot connect to {}: {}", address_, why), false};
  TcpLink link(std::move(socket), Clock::now(),
               {.secret = secret_ ? &*secret_ : nullptr, .is_client = true, .port = target_.port});
  try {
    return exchange(link);
  } catch (const Error& error) {
    return {fmt::format("{}: {}", address_, error.what()), error.kind() == ErrorKind::kDamaged};
  }
}

Socket TcpConnection::connect(std::string& why) {
  const Clock::time_point until = Clock::now() + kConnectTime;
  for (const wire::SocketAddress& address : wire::resolve(target_, &why)) {
    Socket socket;
    const int problem = connect_once(address, until, socket);
    if (problem == 0) return socket;
    why = std::strerror(problem);
  }
  return {};
}

// The errno that it ended with, 0 when connected.
int TcpConnection::connect_once(const wire::SocketAddress& address, Clock::time_point until,
                                Socket& socket) {
  socket =
      Socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno;
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(socket.fd(), name, address.size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  for (;;) {
    if (stops()) return ECANCELED;
    if (Clock::now() >= until) return ETIMEDOUT;
    pollfd descriptors[] = {{socket.fd(), POLLOUT, 0}, {waker_.fd(), POLLIN, 0}};
    ::poll(descriptors, std::size(descriptors), kTickMs);
    waker_.clear();
    if ((descriptors[0].revents & (POLLOUT | POLLERR | POLLHUP)) == 0) continue;
    int problem = 0;
    socklen_t size = sizeof(problem);
    ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &problem, &size);
    return problem;
  }
}

TcpConnection::End TcpConnection::exchange(TcpLink& link) {
  std::vector<std::string> messages;
  for (;;) {
    const bool goes_on = take_queue(link);
    if (!goes_on) return {};
    messages.clear();
    try {
      link.move(Clock::now(), messages);
    } catch (const Error&) {
      deliver(link, messages);  // what came whole before
      throw;
    }
    deliver(link, messages);
    if (const auto& why = link.goodbye()) {
      const std::lock_guard lock(mutex_);
      is_finished_ = is_finishing_ && queue_.empty() && link.is_sent();
      return {fmt::format("{} ended the session{}", address_, why->empty() ? "" : ": " + *why),
              false};
    }
    pollfd descriptors[] = {{link.fd(), link.wanted(), 0}, {waker_.fd(), POLLIN, 0}};
    ::poll(descriptors, std::size(descriptors), kTickMs);
    waker_.clear();
  }
}

// Gives the link what is to be sent; false: it is to be dropped.
bool TcpConnection::take_queue(TcpLink& link) {
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return false;
  if (!link.is_greeted()) return !is_finishing_;
  queued_bytes_ -= link.take_sent_bytes();
  while (!queue_.empty()) {
    link.push(std::move(queue_.front()));
    queue_.pop_front();
  }
  if (is_finishing_) link.end("");
  return true;
}

void TcpConnection::deliver(TcpLink& link, std::vector<std::string>& messages) {
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    is_new = link.is_greeted() && !is_connected_;
    if (is_new) {
      is_connected_ = was_connected_ = true;
      queue_.clear();
      queued_bytes_ = 0;
    }
  }
  if (is_new && events_.connected) events_.connected();
  for (std::string& message : messages) {
    if (events_.received) events_.received(std::move(message));
  }
}

}  // namespace

std::unique_ptr<Connection> connect_over_tcp(const std::string& address, const LinkOptions& options,
                                             wire::Session::Events events) {
  std::optional<wire::Secret> secret;
  if (options.secret) secret.emplace(*options.secret);
  return std::make_unique<TcpConnection>(address, std::move(secret), std::move(events));
}

}  // namespace atl::param_server
