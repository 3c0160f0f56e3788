#include "atoll/comm/tcp/world.h"

#include <utility>

#include "atoll/comm/shared/windows.h"
#include "atoll/comm/tcp/network.h"

namespace atl::comm {

std::unique_ptr<World> open_tcp(const TcpOptions& tcp, const WorldOptions& options) {
  if (tcp.size < 1 || tcp.rank < 0 || tcp.rank >= tcp.size)
    throw user_error("rank {} of {} ranks: ranks are 0 to {}", tcp.rank, tcp.size, tcp.size - 1);
  if (tcp.size == 1) return open_self(options);
  std::unique_ptr<Network> network = std::make_unique<tcp::TcpNetwork>(tcp, options.timeout_s);
  std::unique_ptr<Transport> transport =
      tcp.shared_memory ? shared::with_windows(std::move(network), options) : std::move(network);
  return std::make_unique<World>(std::move(transport), options);
}

}  // namespace atl::comm
