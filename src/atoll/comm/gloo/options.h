#pragma once

#include <string>

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

}  // namespace atl::comm
