#pragma once

#include <memory>

#include "atoll/comm/tcp/options.h"
#include "atoll/comm/world.h"

namespace atl::comm {

/// A world over sockets of our own whose ranks come together at a rendezvous; all of them must call
/// it. Bytes go from and to tensors in the thread that calls a collective, which waits for its
/// peers busily for a moment, then asleep. Survivors of a failed World make another with a higher
/// generation, and ranks and size as they now are. Throws Error(kUser) for options that make no
/// sense or an address that cannot be used; PeerError naming the ranks that did not come in
/// time, or that cannot be reached.
std::unique_ptr<World> open_tcp(const TcpOptions& tcp, const WorldOptions& options);

}  // namespace atl::comm
