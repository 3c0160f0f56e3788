#include "atoll/island/client/round_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::island {
namespace {

using Do = RoundBook::Do;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr OuterTiming kDiLoCo = {.num_fragments = 1, .interval = 4, .apply_after = 0};
constexpr OuterTiming kEager = {.num_fragments = 1, .interval = 4, .apply_after = 4};
constexpr OuterTiming kStreaming = {.num_fragments = 2, .interval = 4, .apply_after = 2};

Lease lease(std::int64_t begin, std::int64_t end) {
  return {.ranges = {{begin, end}}, .inner_steps = end - begin};
}

// Tokens and losses that differ from batch to batch.
void train(RoundBook& book, std::int64_t num_steps) {
  for (std::int64_t i = 0; i < num_steps; ++i) {
    ASSERT_EQ(book.next().what, Do::kTrain);
    const std::int64_t batch = book.next_batch();
    book.trained(1, 10 + batch, 0.5 * static_cast<double>(batch));
  }
}

// A book that has trained batches 0 to 3 and handed them in for outer step 0.
RoundBook after_hand_in(const OuterTiming& timing) {
  RoundBook book(timing);
  book.begin(0, {});
  book.granted(lease(0, 4), 0);
  book.begun();
  train(book, 4);
  EXPECT_EQ(book.next().what, Do::kHandIn);
  book.handed_in();
  return book;
}

TEST(RoundBook, TrainsItsLeaseAndHandsItInAndAppliesWhatWasCommitted) {
  RoundBook book(kDiLoCo);
  book.begin(0, {});
  EXPECT_EQ(book.next().what, Do::kWait);
  book.granted(lease(8, 12), 0);
  EXPECT_EQ(book.next().what, Do::kBeginRound);
  book.begun();
  EXPECT_EQ(book.next_batch(), 8);
  EXPECT_EQ(book.steps_ahead(), 4);
  train(book, 3);
  EXPECT_EQ(book.next_batch(), 11);
  train(book, 1);
  ASSERT_EQ(book.next().what, Do::kHandIn);
  EXPECT_EQ(book.next().outer_step, 0);
  EXPECT_THAT(book.work().trained, ElementsAre(BatchRange{8, 12}));
  EXPECT_EQ(book.work().tokens, 4 * 10 + 8 + 9 + 10 + 11);
  book.handed_in();
  EXPECT_EQ(book.next().what, Do::kWait);
  book.granted(lease(12, 16), 0);
  EXPECT_EQ(book.next().what, Do::kWait) << "the next round begins from the new anchor";
  book.committed(0, 0, true);
  EXPECT_EQ(book.next().what, Do::kApply);
  book.applied();
  EXPECT_THAT(book.work().trained, IsEmpty());
  EXPECT_EQ(book.work().tokens, 0);
  EXPECT_EQ(book.work().loss_sum, 0);
  EXPECT_EQ(book.next().what, Do::kBeginRound);
}

TEST(RoundBook, StreamingAppliesAfterItsOverlapAndNoSoonerOrLater) {
  RoundBook book = after_hand_in(kStreaming);
  book.granted(lease(4, 8), 0);
  ASSERT_EQ(book.next().what, Do::kBeginRound);
  book.begun();
  EXPECT_EQ(book.steps_ahead(), 2) << "the overlap";
  book.committed(0, 0, true);
  EXPECT_TRUE(book.has_committed());
  train(book, 1);
  EXPECT_EQ(book.next().what, Do::kTrain) << "not yet due";
  train(book, 1);
  ASSERT_EQ(book.next().what, Do::kApply);
  EXPECT_EQ(book.next().fragment, 0);
  book.applied();
  EXPECT_THAT(book.work().trained, ElementsAre(BatchRange{4, 6})) << "trained since";
  EXPECT_EQ(book.work().tokens, 10 + 4 + 10 + 5);
  train(book, 2);
  ASSERT_EQ(book.next().what, Do::kHandIn);
  EXPECT_EQ(book.next().outer_step, 1);
  EXPECT_EQ(book.next().fragment, 1) << "fragments take turns";
}

TEST(RoundBook, StreamingWaitsAtItsOverlapForTheCommit) {
  RoundBook book = after_hand_in(kStreaming);
  book.granted(lease(4, 8), 0);
  book.begun();
  train(book, 2);
  EXPECT_EQ(book.next().what, Do::kWait);
  EXPECT_EQ(book.fragment_in_flight(), 0);
  book.committed(0, 0, true);
  EXPECT_EQ(book.next().what, Do::kApply);
}

// A slow island's lease may be shorter than the overlap.
TEST(RoundBook, EagerTrainsTheWholeNextRoundAndHandsInOneAtATime) {
  RoundBook book = after_hand_in(kEager);
  book.granted(lease(4, 6), 0);
  book.begun();
  train(book, 2);
  EXPECT_EQ(book.next().what, Do::kWait) << "the round before has had no answer";
  book.committed(0, 0, true);
  ASSERT_EQ(book.next().what, Do::kApply);
  book.applied();
  ASSERT_EQ(book.next().what, Do::kHandIn);
  EXPECT_THAT(book.work().trained, ElementsAre(BatchRange{4, 6}));
}

TEST(RoundBook, WhatCameTooLateIsRebasedAndHandedInWithTheNext) {
  RoundBook book = after_hand_in(kDiLoCo);
  book.committed(0, 0, false);
  ASSERT_EQ(book.next().what, Do::kRebase);
  EXPECT_TRUE(book.next().takes_back);
  book.rebased();
  EXPECT_EQ(book.fragment_in_flight(), -1);
  EXPECT_EQ(book.next().what, Do::kWait);
  book.granted(lease(9, 11), 1);
  book.begun();
  train(book, 2);
  ASSERT_EQ(book.next().what, Do::kHandIn);
  EXPECT_EQ(book.next().outer_step, 1);
  EXPECT_THAT(book.work().trained, ElementsAre(BatchRange{0, 4}, BatchRange{9, 11}));
}

TEST(RoundBook, ACommitWithoutThisIslandWhileItTrainsTakesNothingBack) {
  RoundBook book(kDiLoCo);
  book.begin(0, {});
  book.granted(lease(0, 4), 0);
  book.begun();
  train(book, 1);
  book.committed(0, 0, false);
  ASSERT_EQ(book.next().what, Do::kRebase);
  EXPECT_FALSE(book.next().takes_back);
  book.rebased();
  train(book, 3);
  EXPECT_EQ(book.next().outer_step, 1);
}

TEST(RoundBook, WhatWasDroppedIsTakenBackWhenItIsDue) {
  RoundBook book = after_hand_in(kStreaming);
  book.granted(lease(4, 8), 0);
  book.begun();
  book.granted({}, 1);
  train(book, 1);
  EXPECT_EQ(book.next().what, Do::kTrain);
  train(book, 1);
  ASSERT_EQ(book.next().what, Do::kTakeBack);
  EXPECT_EQ(book.next().fragment, 0);
  book.taken_back();
  train(book, 2);
  ASSERT_EQ(book.next().what, Do::kHandIn);
  EXPECT_EQ(book.next().outer_step, 0) << "none was committed";
  EXPECT_THAT(book.work().trained, ElementsAre(BatchRange{0, 4}, BatchRange{4, 8}));
}

// A lease without batches: what there is, is handed in again.
TEST(RoundBook, AnEmptyLeaseHandsInAgainWhatThereIs) {
  RoundBook book = after_hand_in(kDiLoCo);
  book.granted({}, 1);
  ASSERT_EQ(book.next().what, Do::kTakeBack);
  book.taken_back();
  ASSERT_EQ(book.next().what, Do::kBeginRound);
  book.begun();
  EXPECT_EQ(book.next().what, Do::kHandIn);
}

// The coordinator's word on a hand-in passes the next hand-in on its way.
TEST(RoundBook, ADropOfAnOlderHandInSaysNothingOfTheNewestOne) {
  RoundBook book = after_hand_in(kEager);
  book.granted(lease(4, 8), 0);
  book.begun();
  book.committed(0, 0, false);
  book.rebased();
  train(book, 4);
  ASSERT_EQ(book.next().what, Do::kHandIn);
  book.handed_in();
  book.granted({}, 1);
  EXPECT_EQ(book.next().what, Do::kBeginRound) << "the second goes on";
  book.begun();
  EXPECT_EQ(book.next().what, Do::kWait);
  book.committed(1, 0, true);
  EXPECT_EQ(book.next().what, Do::kApply);
}

// The island was held up: two outer steps are done before it has acted on the first.
TEST(RoundBook, WhatWasCommittedIsAppliedBeforeALaterChange) {
  RoundBook book = after_hand_in(kEager);
  book.granted(lease(4, 8), 0);
  book.begun();
  train(book, 1);
  book.committed(0, 0, true);
  book.committed(1, 0, false);
  ASSERT_EQ(book.next().what, Do::kApply) << "before it is due";
  book.applied();
  ASSERT_EQ(book.next().what, Do::kRebase);
  EXPECT_FALSE(book.next().takes_back);
  book.rebased();
  train(book, 3);
  ASSERT_EQ(book.next().what, Do::kHandIn);
  EXPECT_EQ(book.next().outer_step, 2);
  EXPECT_THAT(book.work().trained, ElementsAre(BatchRange{4, 8})) << "0 to 3 are the run's";
}

TEST(RoundBook, StateThatWasFetchedKeepsTheWorkOrDropsItAsTold) {
  for (const bool drops : {false, true}) {
    RoundBook book = after_hand_in(kEager);
    book.granted(lease(4, 8), 0);
    book.begun();
    train(book, 1);
    book.granted(lease(8, 12), 0);
    book.replaced(5, drops);
    ASSERT_EQ(book.next().what, Do::kAdopt);
    EXPECT_EQ(book.next().drops_work, drops);
    EXPECT_EQ(book.fragment_in_flight(), 0) << "to be rebased as such";
    book.adopted();
    EXPECT_EQ(book.fragment_in_flight(), -1);
    EXPECT_EQ(book.work().holds().empty(), drops);
    if (drops) {
      EXPECT_EQ(book.next().what, Do::kWait) << "the lease was for what is void";
    } else {
      train(book, 3);
      ASSERT_EQ(book.next().what, Do::kHandIn);
      EXPECT_EQ(book.next().outer_step, 5);
      EXPECT_THAT(book.work().trained, ElementsAre(BatchRange{0, 4}, BatchRange{4, 8}));
    }
  }
}

TEST(RoundBook, ALeaseAfterStateThatDroppedWorkCounts) {
  RoundBook book = after_hand_in(kDiLoCo);
  book.replaced(3, true);
  book.granted(lease(20, 24), 0);
  book.adopted();
  ASSERT_EQ(book.next().what, Do::kBeginRound);
  book.begun();
  EXPECT_EQ(book.next_batch(), 20);
}

TEST(RoundBook, GoesOnFromACheckpoint) {
  RoundBook book(kDiLoCo);
  book.begin(7, {.trained = {{30, 32}}, .left = {{32, 33}, {40, 41}}, .tokens = 99});
  EXPECT_EQ(book.next_batch(), 32);
  book.trained(2, 1, 0);
  ASSERT_EQ(book.next().what, Do::kHandIn);
  EXPECT_EQ(book.next().outer_step, 7);
  EXPECT_EQ(book.work().tokens, 100);
  EXPECT_THAT(book.work().trained, ElementsAre(BatchRange{30, 33}, BatchRange{40, 41}));
}

TEST(RoundBook, RefusesWhatCannotBe) {
  RoundBook book(kDiLoCo);
  book.begin(0, {});
  EXPECT_THROW(book.committed(0, 0, true), Error) << "nothing was handed in";
  EXPECT_THROW(book.trained(1, 0, 0), Error) << "nothing was leased";
  EXPECT_THROW(book.handed_in(), Error);
  EXPECT_THROW(book.applied(), Error);
  book.committed(0, 0, false);
  EXPECT_THROW(book.replaced(2, false), Error) << "the commit is not settled";
}

TEST(RoundBook, AnEndedRunLeavesNothingToDo) {
  RoundBook book = after_hand_in(kEager);
  book.granted(lease(4, 8), 0);
  book.end();
  EXPECT_EQ(book.next().what, Do::kWait);
  EXPECT_THAT(book.work().holds(), IsEmpty());
}

}  // namespace
}  // namespace atl::island
