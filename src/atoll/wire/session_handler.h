#pragma once

#include <cstdint>
#include <string>

#include "atoll/wire/peer.h"

namespace atl::wire {

/// One client's stream of frames to this server, never used twice; a client that reconnects gets
/// another.
using SessionId = std::uint64_t;

/// Who gets the frames that clients send. Called by the server's threads: for one session one call
/// at a time, opened first and closed last; for different ones at the same time. Calls back into
/// the server are allowed, except stop().
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void opened(SessionId session, const Peer& peer) = 0;
  /// Frames come in the order they were sent. The next is not read before this returns.
  virtual void received(SessionId session, std::string frame) = 0;
  virtual void closed(SessionId session, const std::string& why) = 0;
};

}  // namespace atl::wire
