#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace atl::wire {

/// The other side of a connection.
struct Peer {
  std::string name;     ///< from its certificate, which was checked; "" without TLS
  std::string address;  ///< as the system sees it, for people
};

/// Who makes a call about a blob: what its connection proves, and what it shows besides.
struct Caller {
  std::string name;          ///< from its certificate, which was checked; "" without TLS
  std::string access_token;  ///< a secret that it was told, or made and told us; "" none
};

/// Counts payload: frames and chunks, without what TLS, HTTP/2 and TCP add. May be read and added
/// to from any thread.
struct TrafficCounters {
  std::atomic<std::uint64_t> sent_bytes{0};
  std::atomic<std::uint64_t> received_bytes{0};
};

/// Frames are messages of a conversation; what is larger travels as a blob.
inline constexpr std::size_t kMaxFrameBytes = std::size_t{4} << 20;

/// Blobs are cut into chunks of this size if nothing else is said, and never into larger ones than
/// the next: a chunk is held whole by both sides.
inline constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxChunkBytes = std::size_t{4} << 20;

/// When a silent connection is taken for dead.
struct Keepalive {
  int interval_ms = 10'000;  ///< of silence, until the other side is asked whether it lives
  int timeout_ms = 5'000;    ///< for its answer
};

}  // namespace atl::wire
