#pragma once

// What other threads have to say to the clients of a server. For the .cpp files here.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "atoll/base/processes/process.h"
#include "atoll/http/response.h"

namespace atl::http {

/// Something for a connection to send.
struct Outgoing {
  /// What it is.
  enum class Kind : std::uint8_t { kWhole, kBegin, kPiece, kEnd };
  std::uint64_t connection = 0;
  std::uint64_t request = 0;  ///< of that connection; others than the present one are too late
  Kind kind = Kind::kWhole;
  Response response;  ///< kWhole, kBegin
  std::string piece;  ///< kPiece
};

/// Shared by a server's thread and all replies. The server's thread is woken by a descriptor.
class Outboxes {
 public:
  explicit Outboxes(std::size_t max_unread);

  /// Of the server's thread.
  void open(std::uint64_t connection);
  void close(std::uint64_t connection);
  void close_all();
  /// The connection has `unread` bytes that its client has not taken yet.
  void set_unread(std::uint64_t connection, std::size_t unread);
  std::vector<Outgoing> take();
  int wake_fd() const { return wake_.get(); }
  /// Makes wake_fd() readable.
  void wake() const;

  /// Whether any connection has something that its client has not taken, or that it has not got.
  bool has_unsent();

  /// Of any thread. False: the connection is gone, or has too much unread and will be ended.
  bool put(Outgoing outgoing);
  bool is_open(std::uint64_t connection);
  /// Whether it has had too much unread.
  bool is_too_slow(std::uint64_t connection);
  /// As Reply::on_gone().
  void on_gone(std::uint64_t connection, std::uint64_t request, std::function<void()> gone);

 private:
  struct Box {
    std::function<void()> gone;  // until the answer to `request` is whole
    std::uint64_t request = 0;
    std::size_t unread = 0;   // in the connection
    std::size_t waiting = 0;  // in list_
    bool too_slow = false;
  };
  std::size_t max_unread_;
  Fd wake_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, Box> boxes_;
  std::vector<Outgoing> list_;
};

}  // namespace atl::http
