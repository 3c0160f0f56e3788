#pragma once

#include <memory>
#include <string>

#include "atoll/param_server/transport.h"

namespace atl::param_server {

/// As open_listener() and open_connection(): tcp_link.h, with one thread for all sessions of a
/// listener and one for each connection. Nobody is authenticated and nothing is encrypted.
std::unique_ptr<Listener> listen_over_tcp(const std::string& listen, wire::SessionHandler& handler);
std::unique_ptr<Connection> connect_over_tcp(const std::string& address,
                                             wire::Session::Events events);

}  // namespace atl::param_server
