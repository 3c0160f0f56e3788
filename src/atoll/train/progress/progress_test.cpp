#include "atoll/train/progress/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace atl::train {
namespace {

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

// Columns that a text takes on a terminal: all but the bytes that go on with a character.
std::ptrdiff_t columns_of(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

TEST(Progress, TheBarFitsAnyWidth) {
  const StepReport report = {
      .step = 720, .total_steps = 1600, .loss = 3.7579, .tokens_per_s = 10393, .seconds_left = 17};
  for (int columns = 1; columns < 200; ++columns) {
    EXPECT_LE(columns_of(format_bar(report, columns)), columns) << columns;
  }
  const std::string said = " 45%  step 720/1600  loss 3.758  10,393 tok/s  left 0:17";
  EXPECT_EQ(format_bar(report, 56), said);
  EXPECT_EQ(format_bar(report, 61), "━─── " + said) << "as much bar as there is room";
  EXPECT_EQ(columns_of(format_bar(report, 300)), 31 + 56);
  EXPECT_EQ(format_bar(report, 55), "━━━━━───────  45%  step 720/1600  loss 3.758  left 0:17");
  EXPECT_EQ(format_bar(report, 20), " 45%  step 720/1600");
  EXPECT_EQ(format_bar(report, 3), " 45");
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
