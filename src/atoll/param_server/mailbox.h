#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

namespace atl::param_server {

/// What comes on a process's connections, in order, for the one thread that runs its state machine.
/// Thread safe. What may pile up is bounded by what the other sides ask for at once.
class Mailbox {
 public:
  struct Letter {
    enum class Kind { kOpened, kReceived, kClosed, kBroken } kind = Kind::kReceived;
    /// Which connection: a session of this process's server, or a link that it has opened.
    enum class From { kSession, kScheduler, kServer } from = From::kSession;
    std::uint64_t id = 0;   ///< of the session, or of the server
    std::string text;       ///< a frame; why it was closed
    bool is_final = false;  ///< kBroken: trying again cannot help
  };

  void put(Letter letter) {
    {
      const std::lock_guard lock(mutex_);
      letters_.push_back(std::move(letter));
    }
    changed_.notify_one();
  }
  /// Waits until there is something, or `timeout` has passed, or stop() was called; takes all.
  std::deque<Letter> take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return !letters_.empty() || stops_; });
    return std::exchange(letters_, {});
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
  }
  bool is_stopping() const {
    const std::lock_guard lock(mutex_);
    return stops_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Letter> letters_;
  bool stops_ = false;
};

}  // namespace atl::param_server
