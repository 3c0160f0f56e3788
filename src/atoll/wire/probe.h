#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "atoll/wire/identity.h"

namespace atl::wire {

/// Why a server cannot be reached.
struct ProbeResult {
  std::string why;        ///< one line; "" when nothing was found to be wrong
  bool is_final = false;  ///< trying again cannot help
};

/// Connects to HOST:PORT as a client with `identity` (or without) would, to find out what gRPC does
/// not tell: whether somebody listens, speaks TLS, has a certificate that is good for `server_name`
/// (empty: the host), and takes ours. Takes at most about `timeout_ms`, and ends at once when
/// cancelled, with whatever it says then.
ProbeResult probe(const std::string& address, const std::optional<Identity>& identity,
                  const std::string& server_name, int timeout_ms, std::stop_token cancel = {});

}  // namespace atl::wire
