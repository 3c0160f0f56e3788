#include "atoll/comm/gloo/world.h"

#include <csignal>
#include <utility>

#include "atoll/comm/gloo/network.h"
#include "atoll/comm/shared/windows.h"

namespace atl::comm {

bool has_gloo() {
  return true;
}

std::unique_ptr<World> open_gloo(const GlooOptions& gloo, const WorldOptions& options) {
  if (gloo.size < 1 || gloo.rank < 0 || gloo.rank >= gloo.size)
    throw user_error("rank {} of {} ranks: ranks are 0 to {}", gloo.rank, gloo.size, gloo.size - 1);
  if (gloo.size == 1) return open_self(options);
  // Gloo writes to sockets without saying that a peer's end must not be ours.
  std::signal(SIGPIPE, SIG_IGN);
  std::unique_ptr<Network> network =
      std::make_unique<gloo_net::GlooNetwork>(gloo, options.timeout_s);
  std::unique_ptr<Transport> transport =
      gloo.shared_memory ? shared::with_windows(std::move(network), options) : std::move(network);
  return std::make_unique<World>(std::move(transport), options);
}

}  // namespace atl::comm
