#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "atoll/http/response.h"

namespace atl::http {

class Outboxes;

/// Where the answer to one request goes. It may be given at once or later, from any thread; a copy
/// means the same request. When the client or the server is gone meanwhile, nothing happens.
class Reply {
 public:
  Reply(std::shared_ptr<Outboxes> outboxes, std::uint64_t connection, std::uint64_t request)
      : outboxes_(std::move(outboxes)), connection_(connection), request_(request) {}

  /// The whole answer.
  void send(Response response) const;
  /// Begins an answer whose body comes in pieces.
  void begin(Response head) const;
  /// The next piece. Never waits: false when the client is gone, or has left so much unread
  /// (ServerOptions::max_unread_bytes) that its connection is ended here.
  bool write(std::string_view piece) const;
  /// The body is whole.
  void end() const;
  /// Whether the client is still there.
  bool is_open() const;
  /// Has `gone` called once if the client goes before the answer is whole, also one that is too
  /// slow, and when the server ends: on the server's thread, or at once where the client has gone
  /// already. It must not wait. A second call replaces what the first one gave.
  void on_gone(std::function<void()> gone) const;

 private:
  std::shared_ptr<Outboxes> outboxes_;  // a reply may outlive its server
  std::uint64_t connection_;
  std::uint64_t request_;
};

}  // namespace atl::http
