#include "atoll/param_server/transport.h"

#include <utility>

#include "atoll/param_server/grpc_transport.h"
#include "atoll/param_server/tcp_transport.h"

namespace atl::param_server {

std::unique_ptr<Listener> open_listener(const std::string& listen, const LinkOptions& options,
                                        wire::SessionHandler& handler) {
  check_link(options, "transport", "identity");
  if (options.transport == Transport::kTcp) return listen_over_tcp(listen, options, handler);
  return listen_over_grpc(listen, options, handler);
}

std::unique_ptr<Connection> open_connection(const std::string& address, const LinkOptions& options,
                                            wire::Session::Events events) {
  check_link(options, "transport", "identity");
  if (options.transport == Transport::kTcp)
    return connect_over_tcp(address, options, std::move(events));
  return connect_over_grpc(address, options, std::move(events));
}

}  // namespace atl::param_server
