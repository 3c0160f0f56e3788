#include "atoll/param_server/transport.h"

#include "atoll/base/error.h"

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

}  // namespace atl::param_server
