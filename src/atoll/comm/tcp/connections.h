#pragma once

#include <span>
#include <string>
#include <vector>

#include "atoll/comm/rendezvous/rendezvous.h"
#include "atoll/comm/rendezvous/rendezvous_wire.h"
#include "atoll/comm/tcp/options.h"

namespace atl::comm::tcp {

/// This rank's connections.
struct Connections {
  std::vector<rendezvous::Socket> sockets;  ///< of every rank; this one's own is empty
  int local_ranks = 1;                      ///< on this host, this one among them
};

/// Connects this rank with all other `members` (ascending ranks, this one among them), of which
/// each must call it with the same members and the same rendezvous id, which no other members use.
/// A connection has to name that id and both ranks; others are dropped. Throws Error(kUser) naming
/// an address that is none of this host's, PeerError naming the ranks that do not come within
/// `timeout_s` or that cannot be reached.
Connections connect_all(Rendezvous& rendezvous, const std::string& rendezvous_id,
                        const TcpOptions& tcp, std::span<const int> members, double timeout_s);

}  // namespace atl::comm::tcp
