#pragma once

#include <memory>
#include <string>

#include "atoll/param_server/transport.h"

namespace atl::param_server {

/// As open_listener() and open_connection(): tcp_link.h, with one thread for all sessions of a
/// listener and one for each connection. Nothing is encrypted; both sides prove that they know the
/// secret, where there is one, and else nobody is authenticated.
std::unique_ptr<Listener> listen_over_tcp(const std::string& listen, const LinkOptions& options,
                                          wire::SessionHandler& handler);
std::unique_ptr<Connection> connect_over_tcp(const std::string& address, const LinkOptions& options,
                                             wire::Session::Events events);

}  // namespace atl::param_server
