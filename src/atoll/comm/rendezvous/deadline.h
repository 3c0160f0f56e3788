#pragma once

#include <algorithm>
#include <chrono>

namespace atl::comm::rendezvous {

using Clock = std::chrono::steady_clock;

/// The time in so many seconds.
inline Clock::time_point after(double seconds) {
  // A year at most, so that the sum does not overflow.
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::clamp(seconds, 0.0, 3.2e7)));
}

}  // namespace atl::comm::rendezvous
