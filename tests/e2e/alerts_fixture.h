#pragma once

// What the tests of alerts by the program share: the alerts of a run, and a place for a webhook.

#include <arpa/inet.h>
#include <sys/socket.h>

#include <mutex>
#include <thread>

#include "atoll/base/processes/process.h"
#include "atoll/metrics/alert.h"
#include "islands_fixture.h"

namespace atl::e2e {

/// Takes POSTs at 127.0.0.1, answers each with `status`, and keeps what came.
class Receiver {
 public:
  explicit Receiver(int status = 200) : status_(status) {
    listener_ = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const plain = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_.get(), plain, size), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    EXPECT_EQ(::getsockname(listener_.get(), plain, &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { receive(); });
  }
  ~Receiver() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }

  std::string url() const { return fmt::format("http://user:key@127.0.0.1:{}/hook", port_); }
  /// All requests so far, one after the other.
  std::string received() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  void receive() {
    for (;;) {
      const Fd one(::accept(listener_.get(), nullptr, nullptr));
      if (one.get() < 0) return;
      std::string request;
      char piece[4096];
      // The object of an alert ends the body.
      while (request.find("}") == std::string::npos) {
        const ssize_t n = ::read(one.get(), piece, sizeof piece);
        if (n <= 0) break;
        request.append(piece, static_cast<std::size_t>(n));
      }
      const std::string answer =
          fmt::format("HTTP/1.1 {} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status_);
      if (::write(one.get(), answer.data(), answer.size()) < 0) continue;
      const std::lock_guard lock(mutex_);
      text_ += request;
    }
  }

  int status_;
  Fd listener_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::string text_;
  std::thread thread_;
};

/// Runs whose alerts are looked at.
class Alerts : public Islands {
 protected:
  std::vector<metrics::Alert> alerts(const std::string& run) const {
    return metrics::read_alerts(root_.path / run);
  }
  std::vector<metrics::Alert> alerts(const std::string& run, metrics::AlertKind kind) const {
    std::vector<metrics::Alert> found;
    for (const metrics::Alert& alert : alerts(run)) {
      if (alert.kind == kind) found.push_back(alert);
    }
    return found;
  }
  /// Waits until the run has told of this; false after a minute.
  bool tells(const std::string& run, metrics::AlertKind kind) const {
    return soon([&] { return !alerts(run, kind).empty(); });
  }
};

}  // namespace atl::e2e
