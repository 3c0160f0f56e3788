#pragma once

// What the tests of this folder share.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/wire/certs.h"
#include "atoll/wire/server.h"
#include "atoll/wire/session.h"

namespace atl::wire::test {

// In memory, where the system has one: identities are fsynced.
class Directory {
 public:
  Directory() {
    const std::filesystem::path shm = "/dev/shm";
    std::string name = (::access(shm.c_str(), W_OK) == 0 ? shm : "/tmp") / "atoll-wire-XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// An authority with a server and two clients.
class Pki {
 public:
  Pki() {
    make_authority(authority());
    issue(authority(), "server", {"127.0.0.1"}, 30);
    for (const char* name : {"lyon", "oslo"}) issue(authority(), name, {}, 30);
  }
  std::filesystem::path authority() const { return directory_ / "authority"; }
  std::filesystem::path identity(const std::string& name) const {
    return authority() / "identities" / name;
  }

 private:
  Directory directory_;
};

// Remembers lines; several threads write, the test waits.
class Lines {
 public:
  void add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }
  // Whether there are that many within two minutes, which only a hang takes.
  bool wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(2), [&] { return lines_.size() >= count; });
  }
  std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

// A handler that remembers what happens and sends frames back.
class Echo : public SessionHandler {
 public:
  void opened(SessionId session, const Peer& peer) override {
    last = session;
    opens.add(peer.name);
  }
  void received(SessionId session, std::string frame) override {
    frames.add(frame);
    if (server != nullptr) server->send(session, std::move(frame));
  }
  void closed(SessionId, const std::string& why) override { closes.add(why); }

  Server* server = nullptr;  // null: nothing is sent back
  std::atomic<SessionId> last{0};
  Lines opens, frames, closes;
};

// A session whose events are remembered.
class TestClient {
 public:
  explicit TestClient(const SessionOptions& options)
      : session(options, {.connected = [this] { connects.add("connected"); },
                          .received = [this](std::string frame) { frames.add(std::move(frame)); },
                          .disconnected =
                              [this](const std::string& why, bool is_final) {
                                (is_final ? finals : breaks).add(why);
                              }}) {}

  Lines connects, frames, breaks, finals;
  Session session;  // last: its events use what stands above
};

inline SessionOptions session_options(const std::string& address,
                                      std::optional<std::filesystem::path> identity) {
  return {.address = address,
          .identity = std::move(identity),
          .connect_timeout_ms = 2000,
          .min_backoff_ms = 10,
          .max_backoff_ms = 50};
}

}  // namespace atl::wire::test
