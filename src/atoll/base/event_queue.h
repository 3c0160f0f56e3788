#pragma once

// A virtual clock: what simulators run on.

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "atoll/base/check.h"

namespace atl {

/// Events of a simulated world and its time, in seconds. Time passes only from one event to the
/// next. Events of the same time happen in the order in which they were scheduled, so that a run
/// repeats exactly.
class EventQueue {
 public:
  double now() const { return now_; }
  bool empty() const { return events_.empty(); }
  /// The time of the next event; not where empty().
  double next_time() const { return events_.top().time; }
  /// Schedules `what` for that time, or for now() where that is later.
  void at(double time, std::function<void()> what) {
    events_.push({time < now_ ? now_ : time, num_scheduled_++, std::move(what)});
  }
  /// Moves the clock to the next event, and has it happen. It may schedule others.
  void run_next() {
    ATOLL_CHECK(!events_.empty(), "nothing is scheduled");
    // The top is const only because moving it could break the order; it is popped at once.
    Event next = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = next.time;
    next.what();
  }

 private:
  struct Event {
    double time = 0;
    std::uint64_t number = 0;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  double now_ = 0;
  std::uint64_t num_scheduled_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace atl
