#include "atoll/island/coordinator/suspicion.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace atl::island {

namespace {

// Fewer intervals than these say nothing.
constexpr std::size_t kEnough = 4;
constexpr Seconds kShortest = 1e-3;
// Clocks drift by less than the usual delay in twice this time.
constexpr Seconds kClocksAgreeFor = 600;
// Delays that do not come again are forgotten by and by; there may be minutes between exchanges.
constexpr Seconds kForgetsIn = 1800;

Seconds median_of(std::span<Seconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Suspicion::Suspicion(const SuspicionLimits& limits, Seconds now, Seconds held_back)
    : limits_(limits),
      last_heard_(now),
      last_said_(now),
      patience_(limits.cap),
      held_back_(held_back) {}

Seconds Suspicion::patience() const {
  const Seconds more = std::max(held_back_, late()) - limits_.usual_delay;
  const Seconds known = patience_ + limits_.per_delay * std::max(0.0, more);
  return known * std::pow(1.5, num_wronged_);
}

void Suspicion::heard(Seconds now) {
  last_heard_ = std::max(last_heard_, now);
  last_said_ = last_heard_;
}

void Suspicion::wronged() {
  num_wronged_ = std::min(num_wronged_ + 1, limits_.most_wronged);
}

void Suspicion::vouched_for(Seconds when) {
  if (when - last_said_ < limits_.longest_vouched) last_heard_ = std::max(last_heard_, when);
}

// One that the next follows at once was late by what stopped both, not by what lies before it.
void Suspicion::heard(Seconds now, Seconds sent) {
  heard(now);
  const Beat beat = {.came = now, .sent = sent, .late = lateness(now, sent)};
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

void Suspicion::learn_interval(Seconds interval) {
  intervals_[num_heard_++ % kRemembered] = interval;
  const std::size_t count = std::min(num_heard_, kRemembered);
  if (count < kEnough) return;
  std::array<Seconds, kRemembered> scratch = intervals_;
  const Seconds median = median_of({scratch.data(), count});
  for (std::size_t i = 0; i < count; ++i) scratch[i] = std::abs(intervals_[i] - median);
  const Seconds mad = std::max(median_of({scratch.data(), count}), median / 4);
  patience_ = std::min(limits_.cap, median + limits_.num_mads * mad);
}

// Beyond the quickest of the last ten to twenty minutes: what the clocks are apart falls out.
Seconds Suspicion::lateness(Seconds now, Seconds sent) {
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
