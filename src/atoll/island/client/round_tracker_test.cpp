#include "atoll/island/client/round_tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::island {
namespace {

using Do = RoundTracker::Do;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr OuterTiming kDiLoCo = {.num_fragments = 1, .interval = 4, .apply_after = 0};
constexpr OuterTiming kEager = {.num_fragments = 1, .interval = 4, .apply_after = 4};
constexpr OuterTiming kStreaming = {.num_fragments = 2, .interval = 4, .apply_after = 2};

Lease lease(std::int64_t begin, std::int64_t end) {
  return {.ranges = {{begin, end}}, .inner_steps = end - begin};
}

// Tokens and losses that differ from batch to batch.
void train(RoundTracker& tracker, std::int64_t num_steps) {
  for (std::int64_t i = 0; i < num_steps; ++i) {
    ASSERT_EQ(tracker.next().what, Do::kTrain);
    const std::int64_t batch = tracker.next_batch();
    tracker.trained(1, 10 + batch, 0.5 * static_cast<double>(batch));
  }
}

// A tracker that has trained batches 0 to 3 and handed them in for outer step 0.
RoundTracker after_hand_in(const OuterTiming& timing) {
  RoundTracker tracker(timing);
  tracker.begin(0, {});
  tracker.granted(lease(0, 4), 0);
  tracker.begun();
  train(tracker, 4);
  EXPECT_EQ(tracker.next().what, Do::kHandIn);
  tracker.handed_in();
  return tracker;
}

TEST(RoundTracker, TrainsItsLeaseAndHandsItInAndAppliesWhatWasCommitted) {
  RoundTracker tracker(kDiLoCo);
  tracker.begin(0, {});
  EXPECT_EQ(tracker.next().what, Do::kWait);
  tracker.granted(lease(8, 12), 0);
  EXPECT_EQ(tracker.next().what, Do::kBeginRound);
  tracker.begun();
  EXPECT_EQ(tracker.next_batch(), 8);
  EXPECT_EQ(tracker.steps_ahead(), 4);
  train(tracker, 3);
  EXPECT_EQ(tracker.next_batch(), 11);
  train(tracker, 1);
  ASSERT_EQ(tracker.next().what, Do::kHandIn);
  EXPECT_EQ(tracker.next().outer_step, 0);
  EXPECT_THAT(tracker.work().trained, ElementsAre(BatchRange{8, 12}));
  EXPECT_EQ(tracker.work().tokens, 4 * 10 + 8 + 9 + 10 + 11);
  tracker.handed_in();
  EXPECT_EQ(tracker.next().what, Do::kWait);
  tracker.granted(lease(12, 16), 0);
  EXPECT_EQ(tracker.next().what, Do::kWait) << "the next round begins from the new anchor";
  tracker.committed(0, 0, true);
  EXPECT_EQ(tracker.next().what, Do::kApply);
  tracker.applied();
  EXPECT_THAT(tracker.work().trained, IsEmpty());
  EXPECT_EQ(tracker.work().tokens, 0);
  EXPECT_EQ(tracker.work().loss_sum, 0);
  EXPECT_EQ(tracker.next().what, Do::kBeginRound);
}

TEST(RoundTracker, StreamingAppliesAfterItsOverlapAndNoSoonerOrLater) {
  RoundTracker tracker = after_hand_in(kStreaming);
  tracker.granted(lease(4, 8), 0);
  ASSERT_EQ(tracker.next().what, Do::kBeginRound);
  tracker.begun();
  EXPECT_EQ(tracker.steps_ahead(), 2) << "the overlap";
  tracker.committed(0, 0, true);
  EXPECT_TRUE(tracker.has_committed());
  train(tracker, 1);
  EXPECT_EQ(tracker.next().what, Do::kTrain) << "not yet due";
  train(tracker, 1);
  ASSERT_EQ(tracker.next().what, Do::kApply);
  EXPECT_EQ(tracker.next().fragment, 0);
  tracker.applied();
  EXPECT_THAT(tracker.work().trained, ElementsAre(BatchRange{4, 6})) << "trained since";
  EXPECT_EQ(tracker.work().tokens, 10 + 4 + 10 + 5);
  train(tracker, 2);
  ASSERT_EQ(tracker.next().what, Do::kHandIn);
  EXPECT_EQ(tracker.next().outer_step, 1);
  EXPECT_EQ(tracker.next().fragment, 1) << "fragments take turns";
}

TEST(RoundTracker, StreamingWaitsAtItsOverlapForTheCommit) {
  RoundTracker tracker = after_hand_in(kStreaming);
  tracker.granted(lease(4, 8), 0);
  tracker.begun();
  train(tracker, 2);
  EXPECT_EQ(tracker.next().what, Do::kWait);
  EXPECT_EQ(tracker.fragment_in_flight(), 0);
  tracker.committed(0, 0, true);
  EXPECT_EQ(tracker.next().what, Do::kApply);
}

// A slow island's lease may be shorter than the overlap.
TEST(RoundTracker, EagerTrainsTheWholeNextRoundAndHandsInOneAtATime) {
  RoundTracker tracker = after_hand_in(kEager);
  tracker.granted(lease(4, 6), 0);
  tracker.begun();
  train(tracker, 2);
  EXPECT_EQ(tracker.next().what, Do::kWait) << "the round before has had no answer";
  tracker.committed(0, 0, true);
  ASSERT_EQ(tracker.next().what, Do::kApply);
  tracker.applied();
  ASSERT_EQ(tracker.next().what, Do::kHandIn);
  EXPECT_THAT(tracker.work().trained, ElementsAre(BatchRange{4, 6}));
}

TEST(RoundTracker, WhatCameTooLateIsRebasedAndHandedInWithTheNext) {
  RoundTracker tracker = after_hand_in(kDiLoCo);
  tracker.committed(0, 0, false);
  ASSERT_EQ(tracker.next().what, Do::kRebase);
  EXPECT_TRUE(tracker.next().takes_back);
  tracker.rebased();
  EXPECT_EQ(tracker.fragment_in_flight(), -1);
  EXPECT_EQ(tracker.next().what, Do::kWait);
  tracker.granted(lease(9, 11), 1);
  tracker.begun();
  train(tracker, 2);
  ASSERT_EQ(tracker.next().what, Do::kHandIn);
  EXPECT_EQ(tracker.next().outer_step, 1);
  EXPECT_THAT(tracker.work().trained, ElementsAre(BatchRange{0, 4}, BatchRange{9, 11}));
}

TEST(RoundTracker, ACommitWithoutThisIslandWhileItTrainsTakesNothingBack) {
  RoundTracker tracker(kDiLoCo);
  tracker.begin(0, {});
  tracker.granted(lease(0, 4), 0);
  tracker.begun();
  train(tracker, 1);
  tracker.committed(0, 0, false);
  ASSERT_EQ(tracker.next().what, Do::kRebase);
  EXPECT_FALSE(tracker.next().takes_back);
  tracker.rebased();
  train(tracker, 3);
  EXPECT_EQ(tracker.next().outer_step, 1);
}

TEST(RoundTracker, WhatWasDroppedIsTakenBackWhenItIsDue) {
  RoundTracker tracker = after_hand_in(kStreaming);
  tracker.granted(lease(4, 8), 0);
  tracker.begun();
  tracker.granted({}, 1);
  train(tracker, 1);
  EXPECT_EQ(tracker.next().what, Do::kTrain);
  train(tracker, 1);
  ASSERT_EQ(tracker.next().what, Do::kTakeBack);
  EXPECT_EQ(tracker.next().fragment, 0);
  tracker.taken_back();
  train(tracker, 2);
  ASSERT_EQ(tracker.next().what, Do::kHandIn);
  EXPECT_EQ(tracker.next().outer_step, 0) << "none was committed";
  EXPECT_THAT(tracker.work().trained, ElementsAre(BatchRange{0, 4}, BatchRange{4, 8}));
}

// A lease without batches: what there is, is handed in again.
TEST(RoundTracker, AnEmptyLeaseHandsInAgainWhatThereIs) {
  RoundTracker tracker = after_hand_in(kDiLoCo);
  tracker.granted({}, 1);
  ASSERT_EQ(tracker.next().what, Do::kTakeBack);
  tracker.taken_back();
  ASSERT_EQ(tracker.next().what, Do::kBeginRound);
  tracker.begun();
  EXPECT_EQ(tracker.next().what, Do::kHandIn);
}

// The coordinator's word on a hand-in passes the next hand-in on its way.
TEST(RoundTracker, ADropOfAnOlderHandInSaysNothingOfTheNewestOne) {
  RoundTracker tracker = after_hand_in(kEager);
  tracker.granted(lease(4, 8), 0);
  tracker.begun();
  tracker.committed(0, 0, false);
  tracker.rebased();
  train(tracker, 4);
  ASSERT_EQ(tracker.next().what, Do::kHandIn);
  tracker.handed_in();
  tracker.granted({}, 1);
  EXPECT_EQ(tracker.next().what, Do::kBeginRound) << "the second goes on";
  tracker.begun();
  EXPECT_EQ(tracker.next().what, Do::kWait);
  tracker.committed(1, 0, true);
  EXPECT_EQ(tracker.next().what, Do::kApply);
}

// The island was held up: two outer steps are done before it has acted on the first.
TEST(RoundTracker, WhatWasCommittedIsAppliedBeforeALaterChange) {
  RoundTracker tracker = after_hand_in(kEager);
  tracker.granted(lease(4, 8), 0);
  tracker.begun();
  train(tracker, 1);
  tracker.committed(0, 0, true);
  tracker.committed(1, 0, false);
  ASSERT_EQ(tracker.next().what, Do::kApply) << "before it is due";
  tracker.applied();
  ASSERT_EQ(tracker.next().what, Do::kRebase);
  EXPECT_FALSE(tracker.next().takes_back);
  tracker.rebased();
  train(tracker, 3);
  ASSERT_EQ(tracker.next().what, Do::kHandIn);
  EXPECT_EQ(tracker.next().outer_step, 2);
  EXPECT_THAT(tracker.work().trained, ElementsAre(BatchRange{4, 8})) << "0 to 3 are the run's";
}

TEST(RoundTracker, StateThatWasFetchedKeepsTheWorkOrDropsItAsTold) {
  for (const bool drops : {false, true}) {
    RoundTracker tracker = after_hand_in(kEager);
    tracker.granted(lease(4, 8), 0);
    tracker.begun();
    train(tracker, 1);
    tracker.granted(lease(8, 12), 0);
    tracker.replaced(5, drops);
    ASSERT_EQ(tracker.next().what, Do::kAdopt);
    EXPECT_EQ(tracker.next().drops_work, drops);
    EXPECT_EQ(tracker.fragment_in_flight(), 0) << "to be rebased as such";
    tracker.adopted();
    EXPECT_EQ(tracker.fragment_in_flight(), -1);
    EXPECT_EQ(tracker.work().holds().empty(), drops);
    if (drops) {
      EXPECT_EQ(tracker.next().what, Do::kWait) << "the lease was for what is void";
    } else {
      train(tracker, 3);
      ASSERT_EQ(tracker.next().what, Do::kHandIn);
      EXPECT_EQ(tracker.next().outer_step, 5);
      EXPECT_THAT(tracker.work().trained, ElementsAre(BatchRange{0, 4}, BatchRange{4, 8}));
    }
  }
}

TEST(RoundTracker, ALeaseAfterStateThatDroppedWorkCounts) {
  RoundTracker tracker = after_hand_in(kDiLoCo);
  tracker.replaced(3, true);
  tracker.granted(lease(20, 24), 0);
  tracker.adopted();
  ASSERT_EQ(tracker.next().what, Do::kBeginRound);
  tracker.begun();
  EXPECT_EQ(tracker.next_batch(), 20);
}

TEST(RoundTracker, GoesOnFromACheckpoint) {
  RoundTracker tracker(kDiLoCo);
  tracker.begin(7, {.trained = {{30, 32}}, .left = {{32, 33}, {40, 41}}, .tokens = 99});
  EXPECT_EQ(tracker.next_batch(), 32);
  tracker.trained(2, 1, 0);
  ASSERT_EQ(tracker.next().what, Do::kHandIn);
  EXPECT_EQ(tracker.next().outer_step, 7);
  EXPECT_EQ(tracker.work().tokens, 100);
  EXPECT_THAT(tracker.work().trained, ElementsAre(BatchRange{30, 33}, BatchRange{40, 41}));
}

TEST(RoundTracker, RefusesWhatCannotBe) {
  RoundTracker tracker(kDiLoCo);
  tracker.begin(0, {});
  EXPECT_THROW(tracker.committed(0, 0, true), Error) << "nothing was handed in";
  EXPECT_THROW(tracker.trained(1, 0, 0), Error) << "nothing was leased";
  EXPECT_THROW(tracker.handed_in(), Error);
  EXPECT_THROW(tracker.applied(), Error);
  tracker.committed(0, 0, false);
  EXPECT_THROW(tracker.replaced(2, false), Error) << "the commit is not settled";
}

TEST(RoundTracker, AnEndedRunLeavesNothingToDo) {
  RoundTracker tracker = after_hand_in(kEager);
  tracker.granted(lease(4, 8), 0);
  tracker.end();
  EXPECT_EQ(tracker.next().what, Do::kWait);
  EXPECT_THAT(tracker.work().holds(), IsEmpty());
}

}  // namespace
}  // namespace atl::island
