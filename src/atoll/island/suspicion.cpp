#include "atoll/island/suspicion.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace atl::island {

namespace {

// Fewer intervals than these say nothing.
constexpr std::size_t kEnough = 4;
constexpr Seconds kShortest = 1e-3;

Seconds median_of(std::span<Seconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Suspicion::Suspicion(const SuspicionLimits& limits, Seconds now)
    : limits_(limits), last_heard_(now), patience_(limits.cap) {}

void Suspicion::heard(Seconds now) {
  const Seconds interval = now - last_heard_;
  last_heard_ = std::max(last_heard_, now);
  if (interval < kShortest) return;
  intervals_[num_heard_++ % kRemembered] = interval;
  const std::size_t count = std::min(num_heard_, kRemembered);
  if (count < kEnough) return;
  std::array<Seconds, kRemembered> scratch = intervals_;
  const Seconds median = median_of({scratch.data(), count});
  for (std::size_t i = 0; i < count; ++i) scratch[i] = std::abs(intervals_[i] - median);
  const Seconds mad = std::max(median_of({scratch.data(), count}), median / 4);
  patience_ = std::min(limits_.cap, median + limits_.num_mads * mad);
}

}  // namespace atl::island
