#pragma once

#include <memory>
#include <string>

#include "atoll/wire/blob_store.h"
#include "atoll/wire/peer.h"
#include "atoll/wire/server_options.h"
#include "atoll/wire/session_handler.h"

namespace atl::wire {

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
