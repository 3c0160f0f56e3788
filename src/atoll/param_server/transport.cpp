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

void check_link(const LinkOptions& options, const char* transport, const char* identity,
                const char* secret) {
  if (options.transport != Transport::kTcp) return;
  const auto refuse = [&](const std::optional<std::filesystem::path>& path, const char* what,
                          const char* setting) {
    if (!path) return;
    throw user_error(
        "{} = tcp has no {}, and {} ({}) asks for it; set {} = grpc, or leave {} out where "
        "everybody who reaches the port is trusted",
        transport, what, setting, path->string(), transport, setting);
  };
  refuse(options.identity, "TLS", identity);
  refuse(options.secret, "authentication", secret);
}

std::unique_ptr<Listener> open_listener(const std::string& listen, const LinkOptions& options,
                                        wire::SessionHandler& handler) {
  check_link(options, "transport", "identity", "secret");
  if (options.transport == Transport::kTcp) return listen_over_tcp(listen, handler);
  return listen_over_grpc(listen, options, handler);
}

std::unique_ptr<Connection> open_connection(const std::string& address, const LinkOptions& options,
                                            wire::Session::Events events) {
  check_link(options, "transport", "identity", "secret");
  if (options.transport == Transport::kTcp) return connect_over_tcp(address, std::move(events));
  return connect_over_grpc(address, options, std::move(events));
}

}  // namespace atl::param_server
