#include "atoll/train/island/clock.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace atl::train {
namespace {

// The steps of the schedule that an island's steps of a round are.
std::vector<std::int64_t> take_round(IslandClock& clock, std::int64_t begin, std::int64_t batches,
                                     std::int64_t steps) {
  clock.begin_round(begin, batches, steps);
  std::vector<std::int64_t> seen;
  for (std::int64_t i = 0; i < steps; ++i, clock.stepped()) seen.push_back(clock.schedule_step());
  return seen;
}

using Steps = std::vector<std::int64_t>;

TEST(IslandClock, IsTheIslandsOwnStepsWhereAllAreAsFast) {
  for (const std::int64_t islands : {1, 2, 3, 7}) {
    IslandClock clock(islands);
    std::int64_t own = 0;
    for (const std::int64_t steps : {10, 10, 10, 3}) {  // the last round is shorter
      clock.begin_round(own * islands, steps * islands, steps);
      for (std::int64_t i = 0; i < steps; ++i, ++own, clock.stepped()) {
        EXPECT_EQ(clock.schedule_step(), own);
        EXPECT_EQ(clock.steps_left(33), 33 - own);
      }
    }
    EXPECT_EQ(clock.steps_left(33), 0);
  }
}

TEST(IslandClock, RunsSlowerOnAFastIslandAndFasterOnASlowOne) {
  IslandClock fast(2), slow(2);
  // Twelve steps beside four: sixteen batches, eight steps of the schedule.
  EXPECT_EQ(take_round(fast, 0, 16, 12), (Steps{0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7}));
  EXPECT_EQ(take_round(slow, 0, 16, 4), (Steps{0, 2, 4, 6}));
  EXPECT_EQ(fast.schedule_step(), slow.schedule_step()) << "at the end of the round";
  EXPECT_EQ(take_round(slow, 16, 16, 4), (Steps{8, 10, 12, 14}));
  EXPECT_EQ(fast.steps_left(32), 36) << "24 steps of the schedule are left";
  EXPECT_EQ(slow.steps_left(32), 8);
}

TEST(IslandClock, RunsSlowerOnOneThatIsLeftAlone) {
  IslandClock clock(2);
  EXPECT_EQ(take_round(clock, 20, 4, 4), (Steps{10, 10, 11, 11}));
}

TEST(IslandClock, GoesBackWithTheRun) {
  IslandClock clock(2);
  EXPECT_EQ(take_round(clock, 40, 8, 4).front(), 20);
  EXPECT_EQ(take_round(clock, 24, 8, 4).front(), 12) << "batches came back";
}

TEST(IslandClock, GoesOnFromWhatWasKept) {
  IslandClock clock(2);
  clock.begin_round(16, 16, 4);
  clock.stepped();
  IslandClock again(2);
  again.restore(clock.state());
  EXPECT_EQ(again.schedule_step(), 10);
  again.stepped();
  EXPECT_EQ(again.schedule_step(), 12);
}

TEST(IslandClock, TakesWhateverACoordinatorSays) {
  IslandClock clock(1);
  EXPECT_EQ(clock.schedule_step(), 0);
  EXPECT_EQ(clock.steps_left(7), 7);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_GT(take_round(clock, kMost, kMost, 2).back(), 0);
  EXPECT_EQ(clock.steps_left(7), 0);
}

}  // namespace
}  // namespace atl::train
