#include "atoll/train/progress/held_out_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace atl::train {
namespace {

using ::testing::ElementsAre;

TEST(HeldOutHistory, RemembersTheLowest) {
  HeldOutHistory history;
  for (const auto& [step, loss] :
       {std::pair(10, 3.0), {20, 2.0}, {30, 2.5}, {40, 2.0}, {50, 4.0}}) {
    history.take(step, loss, 2, 0);
  }
  EXPECT_THAT(history.best_steps(), ElementsAre(20, 40));
  EXPECT_EQ(history.best.front().step, 20) << "of equal ones the earlier";
  EXPECT_EQ(history.since_lowest, 3);
  EXPECT_TRUE(history.is_best(40));
  EXPECT_FALSE(history.is_best(30));
}

TEST(HeldOutHistory, CountsWhatIsNotLowerByTheDelta) {
  HeldOutHistory history;
  history.take(1, 3, 0, 0.1);
  history.take(2, 2.95, 0, 0.1);
  history.take(3, 2.91, 0, 0.1);
  EXPECT_EQ(history.since_lowest, 2);
  history.take(4, 2.85, 0, 0.1);
  EXPECT_EQ(history.since_lowest, 0) << "together they are";
  history.take(5, NAN, 0, 0.1);
  EXPECT_EQ(history.since_lowest, 1);
  history.take(5, 1, 0, 0.1);
  EXPECT_EQ(history.since_lowest, 1) << "a step counts once";
  EXPECT_TRUE(history.best.empty());
}

TEST(HeldOutHistory, GoesThroughNumbers) {
  HeldOutHistory history;
  EXPECT_EQ(HeldOutHistory::from_numbers(history.to_numbers()), history);
  for (int step = 0; step < 40; ++step) history.take(step, 100 - step, 16, 0);
  EXPECT_EQ(history.best.size(), 16u);
  EXPECT_EQ(HeldOutHistory::from_numbers(history.to_numbers()), history);
}

}  // namespace
}  // namespace atl::train
