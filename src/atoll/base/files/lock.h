#pragma once

#include <filesystem>
#include <functional>

namespace atl {

/// Holds a directory against other processes (and other locks of this one) for as long as it lives:
/// an advisory flock(2) on the directory itself, so nothing is left behind when a process is
/// killed.
class DirectoryLock {
 public:
  /// Throws Error(kUser) when another holds it or there is no such directory; the message ends with
  /// `remedy`: "wait for it or give another --out".
  DirectoryLock(const std::filesystem::path& directory, const char* remedy);
  /// Waits until no other holds it, after a call of `waits` when another does. Throws Error(kUser)
  /// when there is no such directory.
  DirectoryLock(const std::filesystem::path& directory, const std::function<void()>& waits);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_ = -1;
};

/// Shares a directory with others that hold it so, against a DirectoryLock, as long as it lives.
class DirectoryHold {
 public:
  /// Waits for a DirectoryLock to end. Throws Error(kUser) when there is no such directory. Where
  /// the file system has no locks it holds nothing.
  explicit DirectoryHold(const std::filesystem::path& directory);
  ~DirectoryHold();
  DirectoryHold(const DirectoryHold&) = delete;
  DirectoryHold& operator=(const DirectoryHold&) = delete;

  /// Whether this path leads to the directory that is held, and not to one that took its place.
  bool is(const std::filesystem::path& directory) const;

 private:
  int fd_ = -1;
};

}  // namespace atl
