#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "atoll/wire/peer.h"

namespace atl::wire {

/// How a server listens and what it bears.
struct ServerOptions {
  std::string listen = "127.0.0.1:0";  ///< HOST:PORT; port 0 picks one
  /// A directory for load_identity(). Without: plaintext, which only loopback is allowed.
  std::optional<std::filesystem::path> identity;
  /// A file with a Secret that both sides must know; only where there is no identity.
  std::optional<std::filesystem::path> secret = {};
  /// Where the newest list of revoked certificates that was ever seen is kept (Revocations).
  std::optional<std::filesystem::path> kept_list = {};
  std::size_t max_frame_bytes = kMaxFrameBytes;
  int max_sessions = 4096;
  int max_sessions_per_peer = 16;
  int max_transfers = 256;
  int max_transfers_per_peer = 32;
  /// A session that lets more than this pile up, because its client does not read, is closed.
  std::size_t max_queue_bytes = std::size_t{64} << 20;
  Keepalive keepalive;
};

}  // namespace atl::wire
