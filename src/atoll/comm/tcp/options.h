#pragma once

#include <string>

namespace atl::comm {

/// Who this rank is and where it finds the others.
struct TcpOptions {
  int rank = 0;
  int size = 1;
  /// "tcp://HOST:PORT" of a RendezvousServer, or "file:///DIRECTORY" that all ranks see.
  std::string rendezvous;
  /// The host name or address on which the others reach this rank. Empty: the one from which it
  /// reached the rendezvous server, or that of this host's name.
  std::string address;
  /// Counts up each time that survivors gather again at the same rendezvous.
  int generation = 0;
  /// Ranks of one host talk through windows of shared memory instead of TCP.
  bool shared_memory = true;
  /// How long the ranks may take to come together; 0: as long as a collective.
  double connect_timeout_s = 0;
};

}  // namespace atl::comm
