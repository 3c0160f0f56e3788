#include "atoll/train/progress.h"

#include <gtest/gtest.h>

#include <cmath>

namespace atl::train {
namespace {

TEST(Progress, CountsHaveThousandsSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1000), "-1,000");
  EXPECT_EQ(format_count(-100), "-100");
}

TEST(Progress, DurationsReadAsAClock) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(std::nan("")), "?");
}

TEST(Progress, TheStepLineNamesEverythingAPersonLooksFor) {
  const std::string line = format_step_line({.step = 12,
                                             .total_steps = 400,
                                             .loss = 3.41212,
                                             .grad_norm = 0.8412,
                                             .lr = 2.7e-3,
                                             .tokens_per_s = 9812,
                                             .mfu = 0.612,
                                             .step_ms = 208.4,
                                             .data_fraction = 0.001,
                                             .seconds_left = 81});
  EXPECT_EQ(line,
            "step  12/400  loss 3.4121  grad_norm 0.841  lr 2.70e-03    9,812 tok/s  MFU 61.2%  "
            "208 ms  data 0.1%  left 1:21");
}

TEST(ProgressBar, DrawsNothingWhereThereIsNoTerminal) {
  ProgressBar bar(false);
  EXPECT_FALSE(bar.active());
  testing::internal::CaptureStderr();
  bar.draw({.step = 1, .total_steps = 2});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace atl::train
