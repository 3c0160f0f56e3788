#include "atoll/base/processes/stop_signals.h"

#include <gtest/gtest.h>

namespace atl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Wish = StopWishes::Wish;

const StopWishes::Clock::time_point kStart{seconds(1000)};

TEST(StopWishes, ASecondSignalWithinSecondsIsNoNewWish) {
  for (const int second : kStopSignals) {
    StopWishes wishes;
    EXPECT_EQ(wishes.take(SIGTERM, kStart), Wish::kStop);
    EXPECT_EQ(wishes.take(second, kStart + milliseconds(1)), Wish::kNothing);
    EXPECT_EQ(wishes.take(second, kStart + kSameWish - milliseconds(1)), Wish::kNothing);
  }
}

TEST(StopWishes, LaterASecondSigintOrSigtermEndsAtOnce) {
  for (const int second : {SIGINT, SIGTERM}) {
    StopWishes wishes;
    EXPECT_EQ(wishes.take(SIGINT, kStart), Wish::kStop);
    EXPECT_EQ(wishes.take(second, kStart + kSameWish), Wish::kNow);
  }
}

// A terminal says it twice by the shell's copy; Slurm's SIGUSR1 comes minutes before its SIGTERM.
TEST(StopWishes, OnlySigintAndSigtermCountAsImpatience) {
  StopWishes wishes;
  EXPECT_EQ(wishes.take(SIGUSR1, kStart), Wish::kStop);
  EXPECT_EQ(wishes.take(SIGHUP, kStart + seconds(60)), Wish::kNothing);
  EXPECT_EQ(wishes.take(SIGTERM, kStart + seconds(120)), Wish::kNothing);
  EXPECT_EQ(wishes.take(SIGUSR2, kStart + seconds(180)), Wish::kNothing);
  EXPECT_EQ(wishes.take(SIGTERM, kStart + seconds(120) + kSameWish), Wish::kNow);
}

TEST(StopWishes, AreForgottenAtAReset) {
  StopWishes wishes;
  EXPECT_EQ(wishes.take(SIGTERM, kStart), Wish::kStop);
  wishes.reset();
  EXPECT_EQ(wishes.take(SIGTERM, kStart + seconds(60)), Wish::kStop);
}

TEST(StopSignals, AreKnownByTheirExitCodes) {
  for (const int signal : kStopSignals) EXPECT_TRUE(is_stop_code(128 + signal));
  EXPECT_TRUE(is_stop_code(128 + SIGPIPE));
  EXPECT_FALSE(is_stop_code(128 + SIGKILL));
  EXPECT_FALSE(is_stop_code(1));
}

}  // namespace
}  // namespace atl
