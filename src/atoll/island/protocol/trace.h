#pragma once

#include <fmt/format.h>

#include <chrono>

#include "atoll/base/log.h"

namespace atl::island {

/// A line with what an outer step has come to and the machine's monotonic clock, in seconds, so
/// that processes of one machine can be laid side by side; where ATOLL_LOG names `outer`.
template <typename... Args>
void trace(fmt::format_string<Args...> format, Args&&... args) {
  if (!log::topic_enabled("outer")) return;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  log::info("[{:.4f}] {}", now.count(), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace atl::island
