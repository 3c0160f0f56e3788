#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace atl::wire {

/// What an issued certificate says.
struct Certificate {
  std::string name;                ///< CN, and one of its DNS names
  std::string serial;              ///< hexadecimal, lower case
  std::vector<std::string> hosts;  ///< DNS names and IP addresses that it may serve at
  std::int64_t not_before = 0;     ///< seconds since 1970
  std::int64_t not_after = 0;
  /// Of the newest list of revoked certificates when it was issued; 0: of an atoll that did not
  /// number them.
  std::int64_t list_number = 0;
  bool is_revoked = false;
};

/// "2026-11-21 14:30 UTC"
std::string format_time(std::int64_t unix_seconds);
/// Seconds since 1970 on this machine's clock.
std::int64_t unix_now();

/// Why the certificate may not be used at `now`: "" or "it expired on ..., and this machine's clock
/// says ...".
std::string validity_problem(const Certificate& certificate, std::int64_t now);

}  // namespace atl::wire
