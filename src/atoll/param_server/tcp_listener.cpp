#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/files/paths.h"
#include "atoll/base/log.h"
#include "atoll/param_server/messages.h"
#include "atoll/param_server/tcp_link.h"
#include "atoll/param_server/tcp_transport.h"
#include "atoll/param_server/waker.h"
#include "atoll/wire/address.h"

namespace atl::param_server {

namespace {

using comm::rendezvous::Socket;
using wire::SessionId;
using Clock = TcpLink::Clock;

// How long a session that is being closed may take to send what is queued for it.
constexpr auto kDrainTime = std::chrono::seconds(2);
// For signs of life, whatever else wakes the thread.
constexpr int kTickMs = 200;
constexpr std::size_t kMostSessions = 4096;

Socket listen_at(const wire::HostPort& at) {
  std::string why;
  for (const wire::SocketAddress& address : wire::resolve(at, &why)) {
    Socket socket(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (socket && ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) ==
            0 &&
        ::listen(socket.fd(), 1024) == 0) {
      return socket;
    }
    why = std::strerror(errno);
  }
  throw user_error("cannot listen at {}: {}; choose another port or an address of this host",
                   wire::to_string(at), why);
}

std::string address_of(const sockaddr_storage& storage, socklen_t size) {
  const wire::SocketAddress address = {.storage = storage, .size = size};
  return address.host();
}

// A session, for the thread of the listener.
struct Session {
  Session(Socket socket, Clock::time_point now, std::string from, const TcpLink::Proof& proof)
      : link(std::move(socket), now, proof), address(std::move(from)) {}
  TcpLink link;
  std::string address;
  bool is_opened = false;  // the handler knows of it
  std::optional<Clock::time_point> drains_until;
  std::string why;  // it is being closed
};

// What other threads want of it.
struct Wishes {
  std::deque<std::string> frames;
  std::size_t bytes = 0;  // of frames, and of those that the link has not sent
  std::optional<std::string> close;
};

class TcpListener final : public Listener {
 public:
  TcpListener(const std::string& listen, std::optional<wire::Secret> secret,
              wire::SessionHandler& handler)
      : handler_(handler), secret_(std::move(secret)) {
    wire::HostPort at = wire::parse_address(listen, "the address to listen at");
    listener_ = listen_at(at);
    at.port = comm::rendezvous::port_of(listener_);
    proof_ = {.secret = secret_ ? &*secret_ : nullptr, .is_client = false, .port = at.port};
    address_ = wire::to_string(at);
    if (!secret_) {
      log::info("{}: everybody who reaches this port is trusted; a secret keeps others out",
                address_);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~TcpListener() override { stop(); }

  std::string address() const override { return address_; }
  bool send(SessionId session, std::string frame) override;
  void close(SessionId session, const std::string& why) override;
  void stop() override;

 private:
  void run();
  bool wait();
  void accept_all(Clock::time_point now);
  void take_wishes(SessionId id, Session& session, Clock::time_point now);
  // Whether the session goes on.
  bool serve(SessionId id, Session& session, Clock::time_point now);
  bool deliver(SessionId id, Session& session);
  void end(Session& session, const std::string& why, Clock::time_point now);
  void forget(SessionId id, const Session& session, const std::string& why);

  wire::SessionHandler& handler_;
  const std::optional<wire::Secret> secret_;
  TcpLink::Proof proof_;
  Socket listener_;
  std::string address_;
  Waker waker_;
  std::vector<pollfd> descriptors_;
  std::map<SessionId, Session> sessions_;
  std::vector<std::string> messages_;
  SessionId last_ = 0;

  std::mutex mutex_;
  std::map<SessionId, Wishes> wishes_;  // of open sessions
  bool is_stopping_ = false;
  std::thread thread_;
};

bool TcpListener::send(SessionId session, std::string frame) {
  ATOLL_CHECK(frame.size() <= kMaxFrame, "a frame of {} bytes", frame.size());
  bool is_taken = false;
  {
    const std::lock_guard lock(mutex_);
    const auto at = wishes_.find(session);
    if (at == wishes_.end() || at->second.close) return false;
    Wishes& wishes = at->second;
    if (wishes.bytes + frame.size() > kListenerQueueBytes) {
      wishes.close =
          fmt::format("it does not read: {} bytes are waiting for it", wishes.bytes + frame.size());
    } else {
      wishes.bytes += frame.size();
      wishes.frames.push_back(std::move(frame));
      is_taken = true;
    }
  }
  waker_.wake();
  return is_taken;
}

void TcpListener::close(SessionId session, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    const auto at = wishes_.find(session);
    if (at != wishes_.end() && !at->second.close) at->second.close = why;
  }
  waker_.wake();
}

void TcpListener::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  waker_.wake();
  if (thread_.joinable()) thread_.join();
}

void TcpListener::run() {
  bool is_ending = false;
  while (!is_ending || !sessions_.empty()) {
    const bool stops = wait();
    const Clock::time_point now = Clock::now();
    if (stops && !std::exchange(is_ending, true)) {
      listener_ = Socket();
      for (auto& [id, session] : sessions_) take_wishes(id, session, now);
      for (auto& [id, session] : sessions_) end(session, "the server stops", now);
    }
    if (!is_ending) accept_all(now);
    for (auto at = sessions_.begin(); at != sessions_.end();) {
      take_wishes(at->first, at->second, now);
      const bool goes_on = serve(at->first, at->second, now);
      at = goes_on ? std::next(at) : sessions_.erase(at);
    }
  }
}

// Returns whether the listener is to stop.
bool TcpListener::wait() {
  descriptors_.assign({{waker_.fd(), POLLIN, 0}});
  if (listener_) descriptors_.push_back({listener_.fd(), POLLIN, 0});
  for (const auto& [id, session] : sessions_) {
    descriptors_.push_back({session.link.fd(), session.link.wanted(), 0});
  }
  ::poll(descriptors_.data(), descriptors_.size(), kTickMs);
  waker_.clear();
  const std::lock_guard lock(mutex_);
  return is_stopping_;
}

void TcpListener::accept_all(Clock::time_point now) {
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    Socket socket(::accept4(listener_.fd(), reinterpret_cast<sockaddr*>(&from), &size,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (sessions_.size() >= kMostSessions) {
      log::warning("refused {}: there are {} connections", address_of(from, size), kMostSessions);
      continue;
    }
    sessions_.try_emplace(++last_, std::move(socket), now, address_of(from, size), proof_);
  }
}

void TcpListener::take_wishes(SessionId id, Session& session, Clock::time_point now) {
  std::optional<std::string> why;
  {
    const std::lock_guard lock(mutex_);
    const auto at = wishes_.find(id);
    if (at == wishes_.end()) return;
    for (std::string& frame : at->second.frames) session.link.push(std::move(frame));
    at->second.frames.clear();
    why = at->second.close;
  }
  if (why) end(session, *why, now);
}

void TcpListener::end(Session& session, const std::string& why, Clock::time_point now) {
  if (session.drains_until) return;
  session.drains_until = now + kDrainTime;
  session.why = why;
  session.link.end(why);
}

bool TcpListener::serve(SessionId id, Session& session, Clock::time_point now) {
  messages_.clear();
  std::string broken;
  bool is_damaged = false;
  try {
    session.link.move(now, messages_);
  } catch (const Error& error) {
    broken = error.what();
    is_damaged = error.kind() == ErrorKind::kDamaged;
  }
  {
    const std::lock_guard lock(mutex_);
    const auto at = wishes_.find(id);
    if (at != wishes_.end()) at->second.bytes -= session.link.take_sent_bytes();
  }
  if (!deliver(id, session)) end(session, "its message was refused", now);
  if (!broken.empty()) {
    if (is_damaged) log::warning("a connection of {} was closed: {}", session.address, broken);
    forget(id, session, session.why.empty() ? broken : session.why);
    return false;
  }
  if (session.link.goodbye()) end(session, "the client ended it", now);
  // An ended session stays until the other side has closed it too, or the time is over.
  const bool is_drained = session.drains_until && session.link.is_sent() &&
                          (session.link.goodbye() || !session.is_opened);
  if (!is_drained && (!session.drains_until || now < *session.drains_until)) return true;
  forget(id, session, session.why);
  return false;
}

// What has come, to the handler; whether it took it.
bool TcpListener::deliver(SessionId id, Session& session) {
  try {
    if (session.link.is_greeted() && !session.is_opened) {
      {
        const std::lock_guard lock(mutex_);
        wishes_[id];
      }
      session.is_opened = true;
      handler_.opened(id, {.name = "", .address = session.address});
    }
    for (std::string& message : messages_) handler_.received(id, std::move(message));
  } catch (const std::exception& error) {
    log::error("session of {}: {}", session.address, error.what());
    return false;
  }
  return true;
}

void TcpListener::forget(SessionId id, const Session& session, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    wishes_.erase(id);
  }
  if (!session.is_opened) return;
  try {
    handler_.closed(id, why);
  } catch (const std::exception& error) {
    log::error("session of {}: {}", session.address, error.what());
  }
}

}  // namespace

std::unique_ptr<Listener> listen_over_tcp(const std::string& listen, const LinkOptions& options,
                                          wire::SessionHandler& handler) {
  std::optional<wire::Secret> secret;
  if (options.secret) {
    if (!path_exists(*options.secret)) wire::Secret::make(*options.secret);
    secret.emplace(*options.secret);
  }
  return std::make_unique<TcpListener>(listen, std::move(secret), handler);
}

}  // namespace atl::param_server
