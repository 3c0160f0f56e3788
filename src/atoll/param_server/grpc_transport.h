#pragma once

#include <memory>
#include <string>

#include "atoll/param_server/transport.h"

namespace atl::param_server {

/// As open_listener() and open_connection(): sessions of wire/, which has gRPC and TLS.
std::unique_ptr<Listener> listen_over_grpc(const std::string& listen, const LinkOptions& options,
                                           wire::SessionHandler& handler);
std::unique_ptr<Connection> connect_over_grpc(const std::string& address,
                                              const LinkOptions& options,
                                              wire::Session::Events events);

}  // namespace atl::param_server
