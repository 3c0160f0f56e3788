#include "atoll/train/island/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl::train {
namespace {

// An island's steps on a clock of the test's.
class Steps {
 public:
  explicit Steps(std::int64_t interval) : pace_(interval) {}
  void take(int n, double seconds, double held_up = 0, double waited = 0) {
    for (int i = 0; i < n; ++i) {
      now_ += held_up + waited + seconds;
      pace_.waited(waited);
      pace_.stepped(seconds, now_);
    }
  }
  double speed() const { return pace_.steps_per_second(); }

 private:
  IslandPace pace_;
  double now_ = 5;
};

TEST(IslandPace, IsThatOfEvenSteps) {
  Steps steps(100);
  EXPECT_EQ(steps.speed(), 0);
  steps.take(1, 0.5);
  EXPECT_DOUBLE_EQ(steps.speed(), 2);
  steps.take(300, 0.5);
  EXPECT_NEAR(steps.speed(), 2, 1e-9);
}

TEST(IslandPace, CountsWhatHoldsTheIslandUpBetweenSteps) {
  Steps steps(100);
  steps.take(101, 0.1, /*held_up=*/0.3);
  // The first step has none before it.
  EXPECT_NEAR(steps.speed(), 1 / 0.4, 0.02);
}

TEST(IslandPace, DoesNotCountWhatWasWaitedFor) {
  Steps steps(100);
  steps.take(50, 0.1, 0, /*waited=*/0.9);
  EXPECT_NEAR(steps.speed(), 10, 1e-6);
}

TEST(IslandPace, IsTakenOverARound) {
  // Ten steps at once, then as long a pause: over any short window it is twice as fast as it is.
  Steps steps(100);
  double least = 1e9;
  double most = 0;
  for (int i = 0; i < 40; ++i) {
    steps.take(1, 0.1, /*held_up=*/1.0);
    if (i >= 20) least = std::min(least, steps.speed());
    steps.take(9, 0.1);
    if (i >= 20) most = std::max(most, steps.speed());
  }
  EXPECT_NEAR(least, 5, 0.4);
  EXPECT_NEAR(most, 5, 0.4);
}

TEST(IslandPace, FollowsAMachineThatBecomesSlower) {
  Steps steps(20);
  steps.take(100, 0.1);
  steps.take(100, 0.4);
  EXPECT_NEAR(steps.speed(), 2.5, 0.05);
}

TEST(IslandPace, ABreakIsNoSlowMachine) {
  Steps steps(100);
  steps.take(99, 0.1);
  steps.take(1, 0.1, /*held_up=*/600);
  // It counts as twenty steps, not as six thousand.
  EXPECT_NEAR(steps.speed(), 100 / (9.9 + 2.0), 1e-6);
}

}  // namespace
}  // namespace atl::train
