#include "atoll/param_server/transport.h"

#include "atoll/base/error.h"
#include "atoll/param_server/grpc_transport.h"
#include "atoll/param_server/tcp_transport.h"

namespace atl::param_server {

Transport parse_transport(const std::string& name, const char* setting) {
  if (name == "grpc") return Transport::kGrpc;
  if (name == "tcp") return Transport::kTcp;
  throw user_error("{} = {}: give grpc or tcp", setting, name);
}

const char* name_of(Transport transport) {
  return transport == Transport::kGrpc ? "grpc" : "tcp";
}

void check_link(const LinkOptions& options, const char* transport, const char* identity) {
  if (options.transport != Transport::kTcp || !options.identity) return;
  throw user_error(
      "{0} = tcp has no TLS, and {1} ({2}) asks for it; set {0} = grpc, or a secret in place of "
      "{1} where the network is trusted",
      transport, identity, options.identity->string());
}

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
