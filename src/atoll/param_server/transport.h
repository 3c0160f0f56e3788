#pragma once

// How the processes of a run speak with each other: frames in both directions, over connections
// that one side opens. Servers and workers use this alone. Behind it are gRPC (grpc_transport.h)
// and plain TCP (tcp_transport.h).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "atoll/wire/server.h"
#include "atoll/wire/session.h"

namespace atl::param_server {

/// The two ways.
enum class Transport : std::uint8_t {
  kGrpc,  ///< with TLS, or with a secret on one host: links need not be trusted
  kTcp,   ///< frames of the TCP engine of an island, as they are: the network is trusted, and
          ///< whoever reaches a port where there is no secret
};

/// Throws Error(kUser) naming `setting` for a name that is neither "grpc" nor "tcp".
Transport parse_transport(const std::string& name, const char* setting);
const char* name_of(Transport transport);

/// How the processes of a run reach and know each other.
struct LinkOptions {
  Transport transport = Transport::kGrpc;
  std::optional<std::filesystem::path> identity;  ///< as in wire::SessionOptions; not with kTcp
  std::optional<std::filesystem::path> secret;    ///< the same, also with kTcp
};

/// Throws Error(kUser) where TLS is asked for and the transport has none. `identity` and
/// `transport`: what these settings are called where they were given.
void check_link(const LinkOptions& options, const char* transport, const char* identity);

/// Takes connections, each a session with a number that is never used twice. Thread safe.
class Listener {
 public:
  virtual ~Listener() = default;
  /// HOST:PORT with the port that was picked.
  virtual std::string address() const = 0;
  /// Queues a frame of at most kMaxFrame bytes; false when the session is closed or closing.
  virtual bool send(wire::SessionId session, std::string frame) = 0;
  /// Ends a session when what is queued for it is sent, or after two seconds.
  virtual void close(wire::SessionId session, const std::string& why) = 0;
  /// Ends all sessions; the handler is not called any more when it returns.
  virtual void stop() = 0;
};

/// Listens at HOST:PORT when it returns; port 0 picks one. `handler` must outlive the listener.
/// Throws Error(kUser) when it cannot listen there, and what check_link() and wire::Server throw.
std::unique_ptr<Listener> open_listener(const std::string& listen, const LinkOptions& options,
                                        wire::SessionHandler& handler);

/// The side that connects, and connects again whenever the connection breaks. Thread safe.
class Connection {
 public:
  virtual ~Connection() = default;
  /// Takes the frame, of at most kMaxFrame bytes, for the present connection. False: there is none,
  /// or its queue is full, and the frame stays as it is. What was queued when a connection breaks
  /// is lost with it.
  virtual bool send(std::string& frame) = 0;
  /// Sends what is queued, and waits until the other side has read it all and ended the session.
  /// False when the connection broke or `timeout_ms` passed first. No event follows.
  virtual bool finish(int timeout_ms) = 0;
};

/// Begins to connect to HOST:PORT and returns. `events` are called by a thread of the connection,
/// one at a time. Throws Error(kUser) for a bad address, and what check_link() and wire::Session
/// throw.
std::unique_ptr<Connection> open_connection(const std::string& address, const LinkOptions& options,
                                            wire::Session::Events events);

/// What may wait to be sent: a session of a listener that lets more pile up is closed.
inline constexpr std::size_t kListenerQueueBytes = std::size_t{1} << 30;
inline constexpr std::size_t kConnectionQueueBytes = std::size_t{256} << 20;

}  // namespace atl::param_server
