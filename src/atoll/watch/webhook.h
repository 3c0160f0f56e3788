#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace atl::watch {

/// Posts JSON texts to one URL, on a thread of its own. The first post() starts the thread, so that
/// a caller may block signals for new threads after it has made this object. Texts wait in a queue
/// of at most kMostWaiting; further texts are dropped. Dropped texts and failures are logged.
class Webhook {
 public:
  static constexpr std::size_t kMostWaiting = 32;
  /// How long one post may take, and the destructor for all texts that are left.
  static constexpr std::chrono::seconds kTimeout{5};

  /// `url`: http:// or https://. Throws Error(kUser) for anything else.
  explicit Webhook(std::string url);
  ~Webhook();
  Webhook(const Webhook&) = delete;
  Webhook& operator=(const Webhook&) = delete;

  /// Puts a text into the queue; does not wait.
  void post(std::string json);

 private:
  void send_all();
  void send(const std::string& json);
  bool is_late();

  std::string url_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  std::int64_t dropped_ = 0;
  bool ends_ = false;
  std::chrono::steady_clock::time_point ends_at_ = std::chrono::steady_clock::time_point::max();
  std::string last_failure_;
  std::thread thread_;
};

/// Throws Error(kUser) that names `what` where `url` is not http:// or https:// with a host.
void check_webhook(const std::string& url, const std::string& what);

}  // namespace atl::watch
