#pragma once

// When a request that failed is sent again.

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "atoll/hub/http_client.h"
#include "atoll/hub/settings.h"

namespace atl::hub {

/// Whether a server that gave this status may give another one later: 408, 429 and those of 5xx
/// that say so.
bool is_passing(int status);

/// How long an answer asks to wait: Retry-After, in seconds or as a date, or RateLimit with nothing
/// left ('"api";r=0;t=55'). Nothing: it does not say. `now`: seconds since 1970.
std::optional<std::chrono::seconds> asked_wait(const HttpResponse& response, std::int64_t now);

/// Counts what failed in a row, and waits between.
class Retries {
 public:
  /// `what` is asked for, for the log. `policy` must outlive this, and `stops`, which ends a wait.
  Retries(const RetryPolicy& policy, std::string what, const std::atomic<bool>* stops)
      : policy_(policy), what_(std::move(what)), stops_(stops) {}

  /// Bytes came: what failed before counts no more.
  void progressed() { failures_ = 0; }
  /// Waits after a failure that may pass, and says so in the log. False, without waiting, when
  /// there were too many, the server asks for too long a wait, or `stops` is true. `why`: one line.
  bool wait(const std::string& why, std::optional<std::chrono::seconds> asked);

 private:
  const RetryPolicy& policy_;
  std::string what_;
  const std::atomic<bool>* stops_;
  int failures_ = 0;
};

/// GETs an address whose answer is short, again and again while what fails may pass. The answer
/// has any status. Throws Error(kIo) naming `what` and the reason when none comes.
HttpResponse get_patiently(HttpClient& client, const HubSettings& settings, const std::string& url,
                           const std::string& what);

}  // namespace atl::hub
