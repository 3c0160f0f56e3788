#pragma once

#include "atoll/base/processes/process.h"

namespace atl::tune {

/// Ends the poll() of another thread.
class WakeEvent {
 public:
  /// Throws Error(kIo).
  WakeEvent();
  /// Readable from wake() on.
  int fd() const { return fd_.get(); }
  /// For any thread.
  void wake() const;
  /// For the thread that polls: the next poll() waits again.
  void clear() const;

 private:
  Fd fd_;
};

}  // namespace atl::tune
