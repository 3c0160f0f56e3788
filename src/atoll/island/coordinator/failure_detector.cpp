#include "atoll/island/coordinator/failure_detector.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace atl::island {

namespace {

// Fewer intervals than these are not enough for a median.
constexpr std::size_t kEnough = 4;
constexpr Seconds kShortest = 1e-3;
// Clocks drift by less than the usual delay in twice this time.
constexpr Seconds kClocksAgreeFor = 600;
// The time in which a delay that does not come again is forgotten; exchanges may be minutes apart.
constexpr Seconds kForgetsIn = 1800;

Seconds median_of(std::span<Seconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

FailureDetector::FailureDetector(const FailureDetectorLimits& limits, Seconds now,
                                 Seconds held_back)
    : limits_(limits),
      last_heard_(now),
      last_said_(now),
      timeout_(limits.cap),
      held_back_(held_back) {}

Seconds FailureDetector::timeout() const {
  const Seconds more = std::max(held_back_, late()) - limits_.usual_delay;
  const Seconds known = timeout_ + limits_.per_delay * std::max(0.0, more);
  return known * std::pow(1.5, num_false_suspicions_);
}

void FailureDetector::heard(Seconds now) {
  last_heard_ = std::max(last_heard_, now);
  last_said_ = last_heard_;
}

void FailureDetector::falsely_suspected() {
  num_false_suspicions_ = std::min(num_false_suspicions_ + 1, limits_.max_false_suspicions);
}

void FailureDetector::heard_by_others(Seconds when) {
  if (when - last_said_ < limits_.longest_heard_by_others)
    last_heard_ = std::max(last_heard_, when);
}

// A late heartbeat that the next one follows at once was held back by a stop of the sender or of
// the link, not by a queue.
void FailureDetector::heard(Seconds now, Seconds sent) {
  heard(now);
  const LastHeartbeat beat = {.came = now, .sent = sent, .late = lateness(now, sent)};
  if (newest_) {
    const Seconds interval = now - newest_->came;
    held_back_ *= std::exp(-interval / kForgetsIn);
    if (interval >= std::max(kShortest, (sent - newest_->sent) / 2)) {
      learn_interval(interval);
      held_back_ = std::max(held_back_, newest_->late);
    }
  }
  newest_ = beat;
}

void FailureDetector::learn_interval(Seconds interval) {
  intervals_[num_heard_++ % kRemembered] = interval;
  const std::size_t count = std::min(num_heard_, kRemembered);
  if (count < kEnough) return;
  std::array<Seconds, kRemembered> scratch = intervals_;
  const Seconds median = median_of({scratch.data(), count});
  for (std::size_t i = 0; i < count; ++i) scratch[i] = std::abs(intervals_[i] - median);
  const Seconds mad = std::max(median_of({scratch.data(), count}), median / 4);
  timeout_ = std::min(limits_.cap, median + limits_.num_mads * mad);
}

// How much slower this heartbeat was than the fastest of the last ten to twenty minutes. The
// difference of the two clocks cancels out.
Seconds FailureDetector::lateness(Seconds now, Seconds sent) {
  const Seconds way = now - sent;
  if (!shortest_[0] || now - shortest_from_ > kClocksAgreeFor) {
    shortest_[1] = shortest_[0];
    shortest_[0] = way;
    shortest_from_ = now;
  }
  shortest_[0] = std::min(*shortest_[0], way);
  const Seconds late = way - std::min(*shortest_[0], shortest_[1].value_or(way));
  return std::min(late, limits_.usual_delay + limits_.longest_delay);
}

}  // namespace atl::island
