#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "atoll/wire/peer.h"

namespace atl::wire {

/// Where a session goes and as whom.
struct SessionOptions {
  std::string address;  ///< HOST:PORT
  /// A directory for load_identity(). Without: plaintext, which only loopback is allowed.
  std::optional<std::filesystem::path> identity;
  /// A file with a Secret that both sides must know; only where there is no identity.
  std::optional<std::filesystem::path> secret = {};
  /// The name that the server's certificate must have; empty: the host of `address`.
  std::string server_name;
  std::size_t max_frame_bytes = kMaxFrameBytes;
  std::size_t max_queue_bytes = std::size_t{64} << 20;  ///< of frames not sent yet
  int connect_timeout_ms = 5'000;
  int min_backoff_ms = 100;  ///< between attempts: doubles to the next, and half of it is random
  int max_backoff_ms = 5'000;
  Keepalive keepalive;
};

/// The client's side of a stream of frames: keeps one to a server, and makes a new one whenever it
/// breaks.
class Session {
 public:
  /// Called by the session's own thread, one at a time.
  struct Events {
    std::function<void()> connected;
    std::function<void(std::string frame)> received;
    /// After connected(), or instead of it: an attempt failed, for another reason than the one
    /// before (so a server that is away for an hour is one call). When `is_final`, trying again
    /// cannot help (a certificate is refused, plaintext meets TLS) and no other call follows.
    std::function<void(const std::string& why, bool is_final)> disconnected;
  };

  /// Begins to connect and returns. Throws Error(kUser) for a bad address, plaintext to more than
  /// loopback, and what load_identity() throws.
  Session(const SessionOptions& options, Events events);
  /// Drops what is not sent. No event is called any more when it returns; not to be called from
  /// one.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Queues a frame, at most max_frame_bytes, for the present connection; false when there is none
  /// or its queue is full. What was queued when a connection breaks is lost with it.
  bool send(std::string frame);

  /// Sends what is queued, and no more after that; waits until the server has read it all and ended
  /// the session. False when the connection broke or `timeout_ms` passed first. disconnected() does
  /// not follow.
  bool finish(int timeout_ms);

  /// Of all connections since the start.
  const TrafficCounters& traffic() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::wire
