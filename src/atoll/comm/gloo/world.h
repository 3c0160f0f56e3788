#pragma once

#include <memory>

#include "atoll/comm/gloo/options.h"
#include "atoll/comm/world.h"

namespace atl::comm {

/// Whether this binary was built with Gloo.
bool has_gloo();

/// A world over TCP whose ranks come together at a rendezvous; all of them must call it. Survivors
/// of a failed World make another with a higher generation, and ranks and size as they now are.
/// Throws Error(kUser) for options that make no sense, an address that cannot be used or a binary
/// without Gloo; PeerError naming the ranks that did not come in time.
std::unique_ptr<World> open_gloo(const GlooOptions& gloo, const WorldOptions& options);

}  // namespace atl::comm
