#pragma once

#include <filesystem>
#include <functional>

#include "atoll/base/processes/process.h"

namespace atl::hub {

/// Holds a lock file by flock(2) as long as it lives, as the Python package `filelock` does, with
/// which it keeps out one another. The system gives the lock back when a process is killed.
class FileLock {
 public:
  /// Makes the file if it is not there and waits until nobody else holds it, after a call of
  /// `waits` when somebody does. Throws Error naming the path when it cannot be made.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waits);

  /// False where the file system has no locks: nobody is kept out.
  bool holds() const { return holds_; }

 private:
  Fd fd_;
  bool holds_ = false;
};

}  // namespace atl::hub
