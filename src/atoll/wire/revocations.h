#pragma once

#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>

#include "atoll/wire/identity.h"

namespace atl::wire {

/// The serials that an identity's revoked.pem names, read again when the file changes. Thread safe.
class Revocations {
 public:
  /// Throws Error for a list that is damaged or not signed by the identity's authority. A list that
  /// does not exist is empty.
  explicit Revocations(const Identity& identity);

  /// Looks at the file at most five times a second. A file that cannot be used or is gone changes
  /// nothing but logs a line: a list never shrinks by accident.
  bool contains(const std::string& serial);

 private:
  struct Version {
    std::filesystem::file_time_type changed{};
    std::uintmax_t bytes = 0;
    bool operator==(const Version&) const = default;
  };
  Version version() const;
  std::set<std::string> read() const;
  void refresh();

  std::filesystem::path file_;
  std::string authority_pem_;
  std::mutex mutex_;
  Version seen_;
  std::set<std::string> serials_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace atl::wire
