#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "atoll/wire/peer.h"

namespace atl::wire {

/// How a transfer ended; all but the first leave chunks missing.
enum class TransferEnd {
  kDone,
  kUnreachable,  ///< nobody there, busy, the connection broke, or nothing came for long: try again
  kGone,         ///< the other side does not have the blob (any more)
  kRefused,      ///< certificates, permissions, sizes that differ, or what its reader threw
  kCancelled,
  kDamaged,  ///< what came was not what was sent: try again
};
/// "done", "unreachable", ...
const char* to_string(TransferEnd end);

/// What a transfer came to.
struct TransferResult {
  TransferEnd end = TransferEnd::kDone;
  std::string why;          ///< one line, when not done
  std::uint64_t bytes = 0;  ///< of payload that this call moved
};

/// One blob to be moved.
struct BlobTransfer {
  std::string key;
  std::uint64_t bytes = 0;
  std::size_t chunk_bytes = kChunkBytes;  ///< as the other side has it, at most kMaxChunkBytes
  int stall_timeout_ms = 30'000;          ///< without a chunk: unreachable
  std::stop_token cancel = {};
  /// Called once, from some thread, when fetch() has sent all its requests, or has failed to. Bytes
  /// that are sent to the same peer before that would delay the requests.
  std::function<void()> on_asked = {};
};

}  // namespace atl::wire
