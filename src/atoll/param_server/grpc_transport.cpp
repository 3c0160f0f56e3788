#include "atoll/param_server/grpc_transport.h"

#include <utility>

#include "atoll/base/files/paths.h"
#include "atoll/param_server/messages.h"
#include "atoll/wire/secret.h"

namespace atl::param_server {

namespace {

// A process that hangs is noticed within the sum.
constexpr wire::Keepalive kKeepalive = {.interval_ms = 2000, .timeout_ms = 3000};

class GrpcListener final : public Listener {
 public:
  GrpcListener(const std::string& listen, const LinkOptions& options, wire::SessionHandler& handler)
      : server_({.listen = listen,
                 .identity = options.identity,
                 .secret = options.secret,
                 .max_frame_bytes = kMaxFrame,
                 .max_sessions_per_peer = 4096,
                 .max_queue_bytes = kListenerQueueBytes,
                 .keepalive = kKeepalive},
                &handler, nullptr) {}
  std::string address() const override { return server_.address(); }
  bool send(wire::SessionId session, std::string frame) override {
    return server_.send(session, std::move(frame));
  }
  void close(wire::SessionId session, const std::string& why) override {
    server_.close(session, why);
  }
  void stop() override { server_.stop(); }

 private:
  wire::Server server_;
};

class GrpcConnection final : public Connection {
 public:
  GrpcConnection(const std::string& address, const LinkOptions& options,
                 wire::Session::Events events)
      : session_({.address = address,
                  .identity = options.identity,
                  .secret = options.secret,
                  .max_frame_bytes = kMaxFrame,
                  .max_queue_bytes = kConnectionQueueBytes,
                  .max_backoff_ms = 500,
                  .keepalive = kKeepalive},
                 std::move(events)) {}
  bool send(std::string& frame) override { return session_.send(frame); }
  bool finish(int timeout_ms) override { return session_.finish(timeout_ms); }

 private:
  wire::Session session_;
};

}  // namespace

std::unique_ptr<Listener> listen_over_grpc(const std::string& listen, const LinkOptions& options,
                                           wire::SessionHandler& handler) {
  if (options.secret && !path_exists(*options.secret)) wire::Secret::make(*options.secret);
  return std::make_unique<GrpcListener>(listen, options, handler);
}

std::unique_ptr<Connection> connect_over_grpc(const std::string& address,
                                              const LinkOptions& options,
                                              wire::Session::Events events) {
  return std::make_unique<GrpcConnection>(address, options, std::move(events));
}

}  // namespace atl::param_server
