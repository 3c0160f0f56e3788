#pragma once

#include "atoll/base/processes/process.h"

namespace atl::tune {

/// An eventfd with which a thread wakes another thread from poll().
class WakeEvent {
 public:
  /// Throws Error(kIo).
  WakeEvent();
  /// The descriptor to poll: readable from wake() until clear(). This object owns it.
  int fd() const { return fd_.get(); }
  /// Makes fd() readable. For any thread.
  void wake() const;
  /// For the thread that polls: the next poll() waits again.
  void clear() const;

 private:
  Fd fd_;
};

}  // namespace atl::tune
