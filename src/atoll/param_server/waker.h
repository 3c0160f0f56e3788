#pragma once

#include <string>

#include "atoll/comm/rendezvous/rendezvous_wire.h"

namespace atl::param_server {

/// Ends the poll() of another thread.
class Waker {
 public:
  /// Throws Error(kIo).
  Waker();
  int fd() const { return event_.fd(); }
  /// For any thread.
  void wake() const;
  /// For the thread that polls: the next poll() waits again.
  void clear() const;

 private:
  comm::rendezvous::Socket event_;  // owns a descriptor of another kind
};

}  // namespace atl::param_server
