#pragma once

// Who may ask: names that a request may call the server by, and secrets that it may show.

#include <string>
#include <string_view>
#include <vector>

#include "atoll/http/request.h"

namespace atl::http {

/// Compares in time that does not show where two texts differ.
bool is_same_secret(std::string_view a, std::string_view b);

/// A random token of 128 bits, in hexadecimal.
std::string new_token();

/// Whether a request's Host is a name of this server. A page of a stranger can make its own name
/// stand for this machine's address (DNS rebinding), and its scripts then read what is served here;
/// their requests still carry the stranger's name. An address of digits is no name and is taken.
/// `names`: in lower case, without ports.
bool is_known_host(const Request& request, const std::vector<std::string>& names);

/// Whether the page that sent the request, where a browser says which (Origin), is of this server.
bool is_own_origin(const Request& request);

/// Whether `host` ("localhost", "127.0.0.1", "::1") means this machine alone.
bool is_loopback(const std::string& host);

}  // namespace atl::http
