#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "atoll/island/protocol/protocol.h"

namespace atl::island {

/// Which schedule each of an island's outer steps has, as the coordinator told it. Tells only of
/// changes: until the first, and for ever where the policy is "fixed", it has nothing.
class ScheduleBook {
 public:
  /// From this outer step on; what was said of later ones is void.
  void use(std::int64_t outer_step, const RoundSchedule& schedule) {
    schedules_.erase(schedules_.lower_bound(outer_step), schedules_.end());
    schedules_[outer_step] = schedule;
    if (schedules_.size() > kMost) schedules_.erase(schedules_.begin());
  }
  /// Null: that of the run's settings.
  const RoundSchedule* of(std::int64_t outer_step) const {
    const auto after = schedules_.upper_bound(outer_step);
    return after == schedules_.begin() ? nullptr : &std::prev(after)->second;
  }

 private:
  static constexpr std::size_t kMost = 64;  // nobody hands in for an older one
  std::map<std::int64_t, RoundSchedule> schedules_;
};

}  // namespace atl::island
