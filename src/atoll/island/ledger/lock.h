#pragma once

#include <filesystem>

namespace atl::island {

/// Holds a ledger against other coordinators for as long as it lives: an advisory flock(2) on a
/// file beside it, `<ledger>.lock`, that says who has it. The file stays behind, the lock does not,
/// even when the process is killed.
class LedgerLock {
 public:
  /// Throws Error(kUser) naming process and host when another one is alive and holds it.
  explicit LedgerLock(const std::filesystem::path& ledger);
  ~LedgerLock();
  LedgerLock(const LedgerLock&) = delete;
  LedgerLock& operator=(const LedgerLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace atl::island
