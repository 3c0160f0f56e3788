#include "atoll/base/event_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace atl {
namespace {

TEST(EventQueue, TimePassesFromEventToEventInTheOrderOfScheduling) {
  EventQueue events;
  std::vector<int> seen;
  events.at(2, [&] { seen.push_back(3); });
  events.at(1, [&] {
    seen.push_back(1);
    events.at(1, [&] { seen.push_back(2); });     // now
    events.at(0.5, [&] { seen.push_back(20); });  // which is past
  });
  events.at(2, [&] { seen.push_back(4); });
  std::vector<double> times;
  while (!events.empty()) {
    times.push_back(events.next_time());
    events.run_next();
    EXPECT_EQ(events.now(), times.back());
  }
  EXPECT_THAT(seen, testing::ElementsAre(1, 2, 20, 3, 4));
  EXPECT_THAT(times, testing::ElementsAre(1, 1, 1, 2, 2));
}

}  // namespace
}  // namespace atl
