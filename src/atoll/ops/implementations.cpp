#include "atoll/ops/implementations.h"

#include <mutex>
#include <set>
#include <string>

#include "atoll/base/log.h"

namespace atl::ops {

void log_choice(std::string_view op, std::string_view implementation, Declined reason) {
  static const bool enabled = log::topic_enabled("ops");
  if (!enabled) return;
  std::string line =
      fmt::format("op {}: {} {}{}", op, implementation,
                  reason == kServed ? "serves" : "declines: ", reason == kServed ? "" : reason);
  static std::mutex mutex;
  static std::set<std::string> seen;  // a step makes the same choices again and again
  const std::lock_guard lock(mutex);
  if (seen.insert(line).second) log::info("{}", line);
}

}  // namespace atl::ops
