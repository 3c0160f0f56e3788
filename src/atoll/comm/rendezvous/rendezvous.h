#pragma once

// Where the ranks of a world find each other before they are connected: a store of keys and values.
// It holds nothing secret and does not authenticate: every process that can reach it can read and
// write it, within limits.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/error.h"

namespace atl::comm {

/// A store of keys and values that all ranks reach. Its functions may be called from one thread at
/// a time.
class Rendezvous {
 public:
  static constexpr std::size_t kLongestKey = 256;
  static constexpr std::size_t kLongestValue = std::size_t{64} << 10;

  virtual ~Rendezvous() = default;

  /// Replaces what the key had. Throws Error(kUser) for a key or value that is too long, Error(kIo)
  /// or Error(kPeer) when the store cannot be reached.
  virtual void set(const std::string& key, std::string_view value) = 0;
  /// What was last set; nothing when nothing was.
  virtual std::optional<std::string> get(const std::string& key) = 0;
  virtual void remove(const std::string& key) = 0;
  /// The address of this host from which the store was reached; empty when there is none.
  virtual std::string local_address() const { return {}; }

  /// get() once there is something. Throws Error(kPeer) naming the key after `timeout_s`.
  std::string wait(const std::string& key, double timeout_s);
};

/// Opens "tcp://HOST:PORT", trying until a server answers or `timeout_s` has passed, or
/// "file:///DIRECTORY", which is created when it does not exist. Throws Error(kUser) naming the
/// address when it is neither, or when nobody answers there as a rendezvous server does.
std::unique_ptr<Rendezvous> open_rendezvous(const std::string& address, double timeout_s);

/// The same store, whose functions may be called from several threads at a time.
std::unique_ptr<Rendezvous> for_threads(std::unique_ptr<Rendezvous> rendezvous);

/// Serves a store on a TCP port from a thread of its own until it is destroyed. Clients that send
/// anything but our protocol, too much, or nothing, are dropped.
class RendezvousServer {
 public:
  struct Limits {
    std::size_t connections = 4096;
    std::size_t bytes = std::size_t{64} << 20;  ///< of all keys and values
    double handshake_s = 5;                     ///< until a client has said what it is
  };

  /// Port 0: one that is free. Throws Error(kUser) naming host and port when it cannot be had.
  RendezvousServer(const std::string& host, int port, const Limits& limits);
  RendezvousServer(const std::string& host, int port) : RendezvousServer(host, port, Limits()) {}
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  int port() const;
  /// "tcp://HOST:PORT", with the host that it was made with.
  std::string address() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Waits until all `size` ranks have come to the rendezvous. Returns an id that is the same on all
/// ranks and that no earlier call had; keys that earlier runs left there do no harm. Throws
/// PeerError naming the ranks that are missing after `timeout_s`.
std::string gather(Rendezvous& rendezvous, int rank, int size, int generation, double timeout_s);

}  // namespace atl::comm
