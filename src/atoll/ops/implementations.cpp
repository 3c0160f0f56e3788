#include "atoll/ops/implementations.h"

#include <mutex>
#include <set>
#include <string>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
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

void refuse_op(const Run& run, std::string_view op, Declined reason, Declined gpu_reason) {
  ATOLL_CHECK(run.stream->device().kind() == DeviceKind::kCuda,
              "no implementation of {} can serve this call: {}", op, reason);
  throw user_error(
      "{}: {}; compute this on a CPU (--device.kind=cpu, or --device=cpu of generate and eval)", op,
      gpu_reason == nullptr
          ? std::string("this version has no kernel of it for GPUs")
          : fmt::format("no kernel of it for GPUs can serve this call: {}", gpu_reason));
}

}  // namespace atl::ops
