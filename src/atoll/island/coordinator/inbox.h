#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "atoll/island/coordinator/island_table.h"

namespace atl::island {

/// The queue of events of all connections, in order. It is bounded: a connection that has not
/// joined may have one frame waiting, its Join, and all such frames together 64 MiB; a connection
/// that has joined may have 8 MiB, many times what an island sends while a disk is slow. Thread
/// safe.
class Inbox {
 public:
  struct Arrival {
    enum class Kind { kOpened, kReceived, kClosed } kind = Kind::kOpened;
    ConnectionId connection = kNoConnection;
    std::string text;  ///< a frame; why it was closed; the peer's name
  };
  using Arrivals = std::deque<Arrival>;

  /// Never refused: there are as many as there are connections.
  void opened(ConnectionId connection, const std::string& name);
  void closed(ConnectionId connection, const std::string& why);
  /// False: the limit of this connection is reached, and the frame is dropped.
  bool received(ConnectionId connection, std::string frame, bool has_joined);

  /// Waits until there is something, the time has come, or stop() was called; takes all.
  Arrivals take(std::chrono::steady_clock::time_point until);
  /// Ends the wait of take().
  void stop();
  bool is_stopping() const;

  static constexpr std::size_t kMaxUnjoinedBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMaxJoinedBytes = std::size_t{8} << 20;

 private:
  struct Waiting {
    std::size_t frames = 0;
    std::size_t bytes = 0;
  };
  void put(Arrival arrival);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Arrivals arrivals_;
  std::map<ConnectionId, Waiting> waiting_;
  std::size_t unjoined_bytes_ = 0;  // bytes
  bool is_stopping_ = false;
};

}  // namespace atl::island
