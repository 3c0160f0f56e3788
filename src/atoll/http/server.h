#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "atoll/http/reply.h"
#include "atoll/http/request.h"
#include "atoll/http/server_options.h"

namespace atl::http {

/// Answers a request, now or later. Called on the server's thread, which serves nobody else
/// meanwhile. What it throws becomes an answer with status 500.
using Handler = std::function<void(const Request& request, Reply reply)>;

/// A server with one thread for all connections. A client's next request is answered when it has
/// taken most of the last answer. When there are as many as there may be, the one
/// that has been silent longest makes room for a new one; those that wait for an answer stay.
class Server {
 public:
  /// Listens; Throws Error(kUser) naming the address when it cannot: a port in use, no such host.
  Server(const ServerOptions& options, Handler handler);
  /// Ends all connections.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  /// How many connections there are.
  std::size_t num_connections() const;
  /// Whether a client has not taken all of what replies were given.
  bool has_unsent() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace atl::http
