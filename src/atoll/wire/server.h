#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "atoll/wire/blobs.h"
#include "atoll/wire/peer.h"

namespace atl::wire {

/// One client's stream of frames to this server, never used twice; a client that reconnects gets
/// another.
using SessionId = std::uint64_t;

/// Who gets the frames that clients send. Called by the server's threads: for one session one call
/// at a time, opened first and closed last; for different ones at the same time. Calls back into
/// the server are allowed, except stop().
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void opened(SessionId session, const Peer& peer) = 0;
  /// Frames come in the order they were sent. The next is not read before this returns.
  virtual void received(SessionId session, std::string frame) = 0;
  virtual void closed(SessionId session, const std::string& why) = 0;
};

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

/// Serves sessions and blobs at one address: TLS 1.3, both sides with certificates of one
/// authority. Revoked certificates are refused from the moment that identity's revoked.pem names
/// them: new calls at once, open sessions within a second. Without a list it does not start.
class Server {
 public:
  /// Listens when it returns. `handler` or `blobs` may be null: such calls are refused. Throws
  /// Error(kUser) when it cannot listen there, for plaintext on more than loopback, and what
  /// load_identity() throws.
  Server(const ServerOptions& options, SessionHandler* handler, BlobStore* blobs);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// HOST:PORT with the port that was picked.
  std::string address() const;

  /// Queues a frame, at most max_frame_bytes; returns false when the session is closed or closing.
  bool send(SessionId session, std::string frame);

  /// Ends a session once the frames queued for it are sent, or after two seconds; its client is
  /// told `why`. closed() is called later.
  void close(SessionId session, const std::string& why);

  /// Ends all sessions and transfers; returns when nothing of handler and blobs is used any more.
  void stop();

  /// Of all sessions and transfers since the start.
  const TrafficCounters& traffic() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::wire
