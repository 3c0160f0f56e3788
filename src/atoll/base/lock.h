#pragma once

#include <filesystem>

namespace atl {

/// Holds a directory against other processes (and other locks of this one) for as long as it lives:
/// an advisory flock(2) on the directory itself, so nothing is left behind when a process is
/// killed.
class DirectoryLock {
 public:
  /// Throws Error(kUser) when another holds it or there is no such directory; the message ends with
  /// `remedy`: "wait for it or give another --out".
  DirectoryLock(const std::filesystem::path& directory, const char* remedy);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace atl
