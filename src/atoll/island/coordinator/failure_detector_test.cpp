#include "atoll/island/coordinator/failure_detector.h"

#include <gtest/gtest.h>

namespace atl::island {
namespace {

constexpr FailureDetectorLimits kLimits = {
    .cap = 2.5, .num_mads = 12, .usual_delay = 0.5, .per_delay = 2, .longest_delay = 15};
constexpr Seconds kEvery = 0.5;
// Median and 12 times a quarter of it.
constexpr Seconds kRegular = kEvery + 12 * kEvery / 4;

// An island whose clock began three hours before the coordinator's.
class RegularHeartbeats {
 public:
  // A heartbeat that is on its way for so long; then the next one is due.
  void beat(Seconds late) {
    const Seconds came = now + late;
    failure_detector.heard(came, kAhead + now);
    now += kEvery;
  }
  void regular(int count) {
    for (int i = 0; i < count; ++i) beat(0);
  }
  // Nothing comes through for so long, then all of it at hardly any distance.
  void cut(int count) {
    Seconds comes = now + count * kEvery;
    for (int i = 0; i < count; ++i, now += kEvery) {
      failure_detector.heard(comes, kAhead + now);
      comes += 0.01;
    }
  }

  static constexpr Seconds kAhead = 10'800;
  FailureDetector failure_detector{kLimits, 0};
  Seconds now = 0;
};

TEST(FailureDetector, ItsPatienceIsMedianAndDeviationsUpToTheCap) {
  FailureDetector failure_detector(kLimits, 0);
  EXPECT_EQ(failure_detector.timeout(), 2.5) << "nothing is known yet";
  Seconds now = 0;
  const auto beat = [&](Seconds after) {
    failure_detector.heard(now + after, now + after), now += after;
  };
  for (int i = 0; i < 8; ++i) beat(0.1);
  // Regular: the deviation counts as a quarter of the median.
  EXPECT_NEAR(failure_detector.timeout(), 0.1 + 12 * 0.025, 1e-9);
  EXPECT_FALSE(failure_detector.is_silent(now + 0.39));
  EXPECT_TRUE(failure_detector.is_silent(now + 0.41));
  for (int i = 0; i < 16; ++i) beat(i % 2 == 0 ? 0.1 : 0.2);
  EXPECT_NEAR(failure_detector.timeout(), 0.2 + 12 * 0.1, 1e-9);
  for (int i = 0; i < 16; ++i) beat(1);
  EXPECT_EQ(failure_detector.timeout(), 2.5);
}

// It has much to say in an outer step, and then nothing but heartbeats for minutes.
TEST(FailureDetector, WhatItSaysBetweenHeartbeatsIsNoHabit) {
  RegularHeartbeats beats;
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < 20; ++j) beats.failure_detector.heard(beats.now - kEvery + j * 0.01);
    beats.beat(0);
  }
  EXPECT_NEAR(beats.failure_detector.timeout(), kRegular, 1e-9);
  beats.failure_detector.heard(beats.now + 1);
  EXPECT_EQ(beats.failure_detector.last_heard(), beats.now + 1) << "but it is a sign of life";
}

TEST(FailureDetector, ALinkThatHoldsHeartbeatsBackIsGivenMoreTime) {
  RegularHeartbeats beats;
  beats.regular(20);
  EXPECT_NEAR(beats.failure_detector.timeout(), kRegular, 1e-9);
  for (int i = 1; i <= 10; ++i) {  // its queue fills
    const Seconds silent_until = beats.now + i * kEvery;
    EXPECT_FALSE(beats.failure_detector.is_silent(silent_until)) << i;
    beats.beat(i * kEvery);
  }
  EXPECT_NEAR(beats.failure_detector.held_back(), 4.5, 0.1)
      << "the last is not known to be alone yet";
  for (int i = 0; i < 10; ++i) beats.beat(5);
  const Seconds timeout = beats.failure_detector.timeout();
  EXPECT_GE(timeout, kRegular + 2 * 4.4);
  EXPECT_LE(timeout, 2.5 + 2 * 4.5);
  for (int i = 9; i >= 0; --i) beats.beat(i * kEvery);  // and empties: they come all but at once
  beats.regular(100);
  EXPECT_NEAR(beats.failure_detector.held_back(), 5, 0.3) << "until the next exchange";
  // The connection was lost meanwhile.
  const FailureDetector anew(kLimits, beats.now, beats.failure_detector.held_back());
  EXPECT_NEAR(anew.timeout(), 2.5 + 2 * (beats.failure_detector.held_back() - 0.5), 1e-9);
  beats.regular(4 * 3600 * 2);
  EXPECT_NEAR(beats.failure_detector.timeout(), kRegular, 1e-9) << "hours without delays";
}

TEST(FailureDetector, OneThatIsLaterThanAnyBeforeIsGivenTimeAtOnce) {
  RegularHeartbeats beats;
  beats.regular(20);
  beats.beat(2);
  EXPECT_NEAR(beats.failure_detector.timeout(), kRegular + 2 * 1.5, 1e-9);
}

TEST(FailureDetector, PartitionsAndStopsEarnNoTime) {
  RegularHeartbeats beats;
  beats.regular(20);
  for (int i = 0; i < 5; ++i) {
    beats.cut(20);
    beats.regular(10);
    EXPECT_LE(beats.failure_detector.timeout(), 2.5) << i;
  }
  // Stopped between saying it and sending it: the next follows at once.
  const Seconds sent = beats.now;
  beats.now += 30;
  beats.failure_detector.heard(beats.now, RegularHeartbeats::kAhead + sent);
  beats.regular(10);
  EXPECT_LE(beats.failure_detector.timeout(), 2.5);
}

TEST(FailureDetector, OthersMayVouchForItButNotForEver) {
  RegularHeartbeats beats;
  beats.regular(20);
  const Seconds last = beats.now - kEvery;
  Seconds now = last;
  for (; now < last + 50; now += kEvery) {
    beats.failure_detector.heard_by_others(now);
    EXPECT_FALSE(beats.failure_detector.is_silent(now + kRegular - 0.1));
  }
  EXPECT_TRUE(beats.failure_detector.is_silent(now + kRegular));
  for (; now < last + 70; now += kEvery) beats.failure_detector.heard_by_others(now);
  EXPECT_TRUE(beats.failure_detector.is_silent(now)) << "a minute without a word of its own";
}

TEST(FailureDetector, ForEachTimeThatItWasWrongedItIsGivenMoreAndLessForEachThatItTakesPart) {
  RegularHeartbeats beats;
  beats.regular(20);
  beats.failure_detector.falsely_suspected();
  EXPECT_NEAR(beats.failure_detector.timeout(), 1.5 * kRegular, 1e-9);
  beats.failure_detector.falsely_suspected();
  EXPECT_NEAR(beats.failure_detector.timeout(), 2.25 * kRegular, 1e-9);
  for (int i = 0; i < 100; ++i) beats.failure_detector.falsely_suspected();
  EXPECT_LE(beats.failure_detector.timeout(), 12 * kRegular);
  for (int i = 0; i < 6; ++i) beats.failure_detector.trust();
  EXPECT_NEAR(beats.failure_detector.timeout(), kRegular, 1e-9);
}

TEST(FailureDetector, NoDelayIsAllowedForWithoutEnd) {
  RegularHeartbeats beats;
  beats.regular(20);
  for (int i = 0; i < 20; ++i) beats.beat(1000);
  EXPECT_LE(beats.failure_detector.timeout(), 2.5 + 2 * 15);
  RegularHeartbeats wild;
  for (const double sent : {0.0, 1e300, -1e300, 0.0, 1e-300}) wild.failure_detector.heard(1, sent);
  EXPECT_LE(wild.failure_detector.timeout(), 2.5 + 2 * 15);
  EXPECT_GE(wild.failure_detector.timeout(), 0.0);
}

// A hundred parts in a million, for a day.
TEST(FailureDetector, ClocksMayDrift) {
  RegularHeartbeats beats;
  for (int i = 0; i < 2 * 86'400; ++i) {
    beats.failure_detector.heard(beats.now * (1 + 1e-4), beats.now);
    beats.now += kEvery;
  }
  EXPECT_LE(beats.failure_detector.timeout(), 2.5);
}

}  // namespace
}  // namespace atl::island
