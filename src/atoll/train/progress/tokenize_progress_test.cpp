#include "atoll/train/progress/tokenize_progress.h"

#include <gtest/gtest.h>

namespace atl::train {
namespace {

std::string logged(std::chrono::milliseconds every) {
  const auto tell = log_progress(every);
  testing::internal::CaptureStderr();
  tell({.bytes_done = 1000, .bytes_total = 4000, .tokens = 300});
  tell({.bytes_done = 2000, .bytes_total = 4000, .tokens = 1200});
  return testing::internal::GetCapturedStderr();
}

TEST(TokenizeProgress, IsALineNowAndThen) {
  EXPECT_EQ(logged(std::chrono::milliseconds(0)),
            "info: 25% tokenized: 300 tokens so far\n"
            "info: 50% tokenized: 1,200 tokens so far\n");
  EXPECT_EQ(logged(std::chrono::hours(1)), "");
}

}  // namespace
}  // namespace atl::train
