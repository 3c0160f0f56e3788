#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "atoll/base/files/lock.h"
#include "atoll/param_server/messages.h"

namespace atl::param_server {

/// Where a scheduler keeps what it must not forget: a directory that one process has at a time.
class SchedulerStore {
 public:
  /// Makes the directory where it is missing, and reads what is there. Throws Error(kUser) when
  /// another process has it, Error(kDamaged) naming the file that is not what was written.
  explicit SchedulerStore(const std::filesystem::path& dir);

  /// Of a scheduler that was killed here; nothing: none was.
  const std::optional<SchedulerState>& found() const { return found_; }
  /// HOST:PORT where that one listened; "" without one.
  const std::string& address() const { return address_; }

  /// Is on disk when it returns. Throws Error(kIo), and Error(kPeer) when a scheduler of a higher
  /// epoch has written here: this one must not say anything more.
  void write(const SchedulerState& state, const std::string& address);
  /// The run has ended: the next one begins with nothing.
  void remove();

 private:
  std::filesystem::path dir_;
  DirectoryLock lock_;
  std::optional<SchedulerState> found_;
  std::string address_;
};

}  // namespace atl::param_server
