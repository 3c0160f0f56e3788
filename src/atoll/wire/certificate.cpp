#include "atoll/wire/certificate.h"

#include <fmt/chrono.h>
#include <chrono>
#include <ctime>

namespace atl::wire {

std::string format_time(std::int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", parts);
}

std::int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string validity_problem(const Certificate& certificate, std::int64_t now) {
  if (now > certificate.not_after) {
    return fmt::format("it expired on {}, and this machine's clock says {}",
                       format_time(certificate.not_after), format_time(now));
  }
  if (now < certificate.not_before) {
    return fmt::format("it is not valid before {}, and this machine's clock says {}",
                       format_time(certificate.not_before), format_time(now));
  }
  return "";
}

}  // namespace atl::wire
