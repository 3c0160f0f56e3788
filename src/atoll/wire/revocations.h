#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "atoll/wire/identity.h"
#include "atoll/wire/revoked_list.h"

namespace atl::wire {

/// The serials that an identity's revoked.pem names, read again when the file changes. A list never
/// shrinks by accident: one that is missing or older than one that was known is refused at the
/// start, and ignored with a line in the log afterwards. Thread safe.
class Revocations {
 public:
  /// `kept`: where the newest list that was ever seen is kept, beside what must outlive the
  /// identity's directory, and updated. Throws Error(kUser) when that one, or the one that the
  /// identity's certificate was issued with, is newer than the identity's, naming both.
  explicit Revocations(const Identity& identity,
                       std::optional<std::filesystem::path> kept = std::nullopt);

  /// Looks at the file at most five times a second.
  bool contains(const std::string& serial);

 private:
  struct Version {
    std::filesystem::file_time_type changed{};
    std::uintmax_t bytes = 0;
    bool operator==(const Version&) const = default;
  };
  Version version() const;
  void compare_with_kept() const;
  void keep() const;
  void refresh();

  std::filesystem::path file_;
  std::optional<std::filesystem::path> kept_;
  std::string authority_pem_;
  std::mutex mutex_;
  Version seen_;
  RevokedList list_;
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace atl::wire
