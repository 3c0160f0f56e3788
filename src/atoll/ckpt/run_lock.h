#pragma once

#include <filesystem>

namespace atl::ckpt {

/// Holds `<run>/lock` for as long as it lives, so that no second process writes into the same run.
/// The operating system lets go when the process ends, however it ends. The file stays; it says
/// who holds it (process and host), and only that.
class RunLock {
 public:
  /// Throws Error(kUser) when another holds it, naming that process; `run` must be a directory.
  explicit RunLock(const std::filesystem::path& run);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace atl::ckpt
