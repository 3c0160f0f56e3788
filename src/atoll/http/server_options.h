#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/http/request.h"
#include "atoll/http/response.h"
#include "atoll/http/tls.h"

namespace atl::http {

/// What a server listens at, and the bounds of what it holds.
struct ServerOptions {
  std::string host = "127.0.0.1";                   ///< an address, or a name of this machine
  int port = 0;                                     ///< 0: a free one
  std::shared_ptr<const TlsContext> tls = nullptr;  ///< null: plain. Shared with other servers.
  Limits limits;
  std::size_t max_connections = 512;
  /// Of an answer in pieces: a client that leaves more unread is ended. An answer that is sent
  /// whole may be longer.
  std::size_t max_unread_bytes = 1 << 20;
  /// Of all connections together; beyond it those who have not read for longest are ended when
  /// another asks.
  std::size_t max_total_unread_bytes = 64 << 20;
  std::chrono::milliseconds head_timeout{10'000};   ///< for a whole request, from its first byte
  std::chrono::milliseconds idle_timeout{60'000};   ///< for the next request's first byte
  std::chrono::milliseconds stall_timeout{30'000};  ///< for a client to take something
  /// Its thread gets what no other thread of this machine wants (SCHED_IDLE), so that no client,
  /// whatever it asks, takes time from the work of this process.
  bool yields = false;
  /// Makes the answer of what the server itself refuses: what is no HTTP, is too long or too slow.
  /// Called on its thread.
  std::function<Response(int status, std::string_view why)> refusal = Response::plain;
};

}  // namespace atl::http
