#include "atoll/optim/schedule.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::optim {
namespace {

Schedule make(Schedule::Kind kind) {
  return {.kind = kind, .peak = 2.0, .min_ratio = 0.1, .warmup_steps = 10, .total_steps = 101};
}

TEST(Schedule, WarmsUpInAStraightLineToThePeak) {
  for (const auto kind : {Schedule::Kind::kConstant, Schedule::Kind::kLinear,
                          Schedule::Kind::kCosine, Schedule::Kind::kWsd}) {
    const Schedule schedule = make(kind);
    EXPECT_DOUBLE_EQ(schedule.learning_rate(0), 0.2);
    EXPECT_DOUBLE_EQ(schedule.learning_rate(4), 1.0);
    EXPECT_DOUBLE_EQ(schedule.learning_rate(9), 2.0);
    EXPECT_DOUBLE_EQ(schedule.learning_rate(10), 2.0);
  }
}

TEST(Schedule, EndsAtTheMinimumOnTheLastStep) {
  EXPECT_DOUBLE_EQ(make(Schedule::Kind::kConstant).learning_rate(100), 2.0);
  EXPECT_NEAR(make(Schedule::Kind::kLinear).learning_rate(100), 0.2, 1e-15);
  EXPECT_NEAR(make(Schedule::Kind::kCosine).learning_rate(100), 0.2, 1e-15);
  EXPECT_NEAR(make(Schedule::Kind::kWsd).learning_rate(100), 0.2, 1e-15);
}

TEST(Schedule, HalfWayIsTheMeanOfPeakAndMinimum) {
  EXPECT_NEAR(make(Schedule::Kind::kLinear).learning_rate(55), 1.1, 1e-15);
  EXPECT_NEAR(make(Schedule::Kind::kCosine).learning_rate(55), 1.1, 1e-15);
}

TEST(Schedule, WsdStaysAtThePeakUntilTheDecay) {
  Schedule schedule = make(Schedule::Kind::kWsd);
  schedule.decay_fraction = 0.2;  // 20 of 101 steps: from step 81
  EXPECT_DOUBLE_EQ(schedule.learning_rate(80), 2.0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(81), 2.0);
  EXPECT_LT(schedule.learning_rate(82), 2.0);
}

TEST(Schedule, ADecayOfOneStepEndsAtTheMinimum) {
  Schedule schedule = make(Schedule::Kind::kLinear);
  schedule.warmup_steps = 100;
  EXPECT_DOUBLE_EQ(schedule.learning_rate(99), 2.0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(100), 0.2);
  Schedule wsd = make(Schedule::Kind::kWsd);
  wsd.decay_fraction = 0.01;
  EXPECT_DOUBLE_EQ(wsd.learning_rate(99), 2.0);
  EXPECT_DOUBLE_EQ(wsd.learning_rate(100), 0.2);
}

TEST(Schedule, NeverRisesAfterWarmUp) {
  for (const auto kind : {Schedule::Kind::kLinear, Schedule::Kind::kCosine, Schedule::Kind::kWsd}) {
    const Schedule schedule = make(kind);
    for (int step = 11; step < 101; ++step) {
      EXPECT_LE(schedule.learning_rate(step), schedule.learning_rate(step - 1)) << step;
    }
  }
}

TEST(Schedule, RefusesAnUnknownName) {
  EXPECT_THROW(schedule_kind("cosin"), Error);
}

}  // namespace
}  // namespace atl::optim
