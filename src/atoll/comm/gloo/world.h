#pragma once

#include <memory>
#include <string>

#include "atoll/comm/world.h"

namespace atl::comm {

/// What Gloo is told: who this rank is and where it finds the others.
struct GlooOptions {
  int rank = 0;
  int size = 1;
  /// "tcp://HOST:PORT" of a RendezvousServer, or "file:///DIRECTORY" that all ranks see.
  std::string rendezvous;
  /// The host name or address on which the others reach this rank. Empty: that of `interface`, or
  /// the one from which it reached the rendezvous server, or that of this host's name.
  std::string address;
  std::string interface;  ///< "eth0"; empty: chosen by address
  /// Counts up each time that survivors gather again at the same rendezvous.
  int generation = 0;
  /// Ranks of one host talk through windows of shared memory instead of TCP.
  bool shared_memory = true;
  /// How long the ranks may take to come together; 0: as long as a collective.
  double connect_timeout_s = 0;
};

/// Whether this binary was built with Gloo.
bool has_gloo();

/// A world over TCP whose ranks come together at a rendezvous; all of them must call it. Survivors
/// of a failed World make another with a higher generation, and ranks and size as they now are.
/// Throws Error(kUser) for options that make no sense, an address that cannot be used or a binary
/// without Gloo; PeerError naming the ranks that did not come in time.
std::unique_ptr<World> open_gloo(const GlooOptions& gloo, const WorldOptions& options);

}  // namespace atl::comm
