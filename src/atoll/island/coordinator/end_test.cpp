// How a run ends: who stays, and until when.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::atl::island::testing::CoordinatorHarness;
using ::atl::island::testing::kFirst;
using ::atl::island::testing::kSecond;
using ::testing::HasSubstr;

// A run that outer step 0 completes, once both islands have said Prepared.
CoordinatorHarness before_the_end() {
  CoordinatorHarness harness;
  harness.options.plan.total_batches = 8;
  harness.restart();
  harness.come(1);
  harness.come(2);
  harness.say(1, harness.ready({{0, 4}}));
  harness.say(2, harness.ready({{4, 8}}));
  return harness;
}

void complete(CoordinatorHarness& harness) {
  const Stamp stamp = {.outer_step = 0, .attempt = harness.newest<Reduce>(1)->stamp.attempt};
  harness.say(1, Prepared{kSecond}, stamp);
  harness.say(2, Prepared{kSecond}, stamp);
  ASSERT_TRUE(harness.coordinator->is_finished());
}

TEST(Coordinator, WhoHasTheFinalStateStaysForThoseThatFetchIt) {
  CoordinatorHarness harness = before_the_end();
  harness.open(3);
  Join late = harness.join("i3");
  late.outer_step = -1;
  late.hashes.clear();
  harness.say(3, late);
  complete(harness);
  harness.wait(20, {1, 2, 3});
  EXPECT_EQ(harness.newest<Finish>(1), nullptr) << "island 3 is fetching from it";
  EXPECT_FALSE(harness.coordinator->is_over());
  harness.say(3, Synced{.outer_step = 1,
                        .hashes = {kSecond},
                        .answers = harness.newest<Welcome>(3)->stamp.sequence});
  harness.save({1, 2, 3});
  EXPECT_TRUE(harness.coordinator->is_over());
}

TEST(Coordinator, TheEndWaitsForThoseThatWentAwayJustBefore) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  harness.close(3);
  complete(harness);
  harness.wait(harness.options.stays_for - 1, {1, 2});
  EXPECT_EQ(harness.newest<Finish>(1), nullptr) << "island 3 may come for what it has";
  harness.wait(2, {1, 2});
  harness.save({1, 2});
  EXPECT_TRUE(harness.coordinator->is_over());
}

TEST(Coordinator, OneThatWakesAfterTheEndGetsTheFinalState) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  harness.wait(3, {1, 2});
  ASSERT_EQ(harness.coordinator->members().count(IslandState::kSuspect), 1);
  complete(harness);
  // It is heard again before it has heard of the end itself.
  harness.say(3, Heartbeat{.sent = harness.now});
  harness.wait(0.5, {1, 2});
  EXPECT_EQ(harness.newest<Finish>(1), nullptr);
  harness.say(3, ReduceFailed{.unreachable = {}, .why = "it has no result"});
  harness.say(3, Synced{.outer_step = 1,
                        .hashes = {kSecond},
                        .answers = harness.newest<Resync>(3)->stamp.sequence});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_TRUE(harness.body<Finish>(island).is_done);
}

TEST(Coordinator, AtTheEndOneThatIsSilentForAMomentIsStillASource) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  harness.close(3);
  complete(harness);
  harness.wait(3, {});  // both others are suspects now
  ASSERT_EQ(harness.coordinator->members().count(IslandState::kActive), 0);
  harness.open(4);
  Join late = harness.join("i3");
  late.outer_step = 0;
  late.hashes = {kFirst};
  harness.say(4, late);
  harness.wait(5, {4});
  for (const ConnectionId island : {1, 2, 4}) EXPECT_EQ(harness.newest<Finish>(island), nullptr);
  harness.say(1, Heartbeat{.sent = harness.now}, {.outer_step = 1});
  EXPECT_EQ(harness.body<Resync>(4).sources.size(), 1U);
}

TEST(Coordinator, OneThatWakesWithTheFinalStateEndsTheWait) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  harness.wait(3, {1, 2});
  complete(harness);
  harness.say(3, Heartbeat{.sent = harness.now}, {.outer_step = 1});
  harness.wait(0.25, {1, 2});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_TRUE(harness.body<Finish>(island).is_done);
}

// Over a slow link it takes a while to make the last outer step of what the others contributed.
TEST(Coordinator, TheEndWaitsForThoseThatAreStillFetchingItsLastOuterStep) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  complete(harness);
  harness.wait(60, {1, 2, 3});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_EQ(harness.newest<Finish>(island), nullptr);
  harness.say(3, Heartbeat{.sent = harness.now}, {.outer_step = 1});
  harness.wait(0.25, {1, 2});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_TRUE(harness.body<Finish>(island).is_done);
}

TEST(Coordinator, WhoIsStillMakingTheLastOuterStepIsToldWhenNobodyIsLeftToFetchItFrom) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  complete(harness);
  harness.close(1);
  harness.close(2);
  harness.wait(0.25, {3});
  ASSERT_NE(harness.newest<Finish>(3), nullptr) << "which it leaves until it has the result";
  harness.say(3, ReduceFailed{.unreachable = {1, 2}, .why = "both are gone"});
  ASSERT_TRUE(harness.body<Resync>(3).sources.empty());
  const std::size_t num_heard = harness.heard[3].size();
  harness.wait(harness.options.stays_for - 1, {3});
  EXPECT_EQ(harness.heard[3].size(), num_heard)
      << "they have not been told of the end and may come";
  harness.wait(5, {3});
  ASSERT_GT(harness.heard[3].size(), num_heard);
  EXPECT_TRUE(std::holds_alternative<Finish>(harness.heard[3].back().body));
}

TEST(Coordinator, NobodyIsLetGoBeforeAllHaveSavedTheFinalModel) {
  CoordinatorHarness harness = before_the_end();
  complete(harness);
  harness.save({1});
  harness.wait(60, {1, 2});
  EXPECT_FALSE(harness.has_closed(1)) << "2 may lose the model with its process";
  EXPECT_FALSE(harness.coordinator->is_over());
  harness.save({2});
  for (const ConnectionId island : {1, 2}) EXPECT_TRUE(harness.has_closed(island));
  EXPECT_TRUE(harness.coordinator->is_over());
}

TEST(Coordinator, OneThatIsKilledBeforeItHasSavedTheFinalModelGetsItFromTheOthers) {
  CoordinatorHarness harness = before_the_end();
  complete(harness);
  EXPECT_TRUE(harness.body<Finish>(1).is_done);
  harness.close(1);
  harness.save({2});
  harness.wait(harness.options.stays_for - 1, {2});
  EXPECT_FALSE(harness.has_closed(2)) << "1 may come back for the model";
  EXPECT_FALSE(harness.coordinator->is_over());
  harness.open(3);
  Join back = harness.join("i1");
  back.outer_step = -1;
  back.hashes.clear();
  harness.say(3, back);
  ASSERT_EQ(harness.body<Welcome>(3).sources.size(), 1U);
  EXPECT_EQ(harness.body<Welcome>(3).sources[0].island, 2U);
  harness.say(3, Synced{.outer_step = 1,
                        .hashes = {kSecond},
                        .answers = harness.newest<Welcome>(3)->stamp.sequence});
  harness.save({3});
  for (const ConnectionId island : {2, 3}) EXPECT_TRUE(harness.has_closed(island));
  EXPECT_TRUE(harness.coordinator->is_over());
}

TEST(Coordinator, OneThatIsKilledThenForGoodKeepsTheOthersForAMinute) {
  CoordinatorHarness harness = before_the_end();
  complete(harness);
  harness.close(1);
  harness.save({2});
  harness.wait(harness.options.stays_for + 1, {2});
  EXPECT_THAT(harness.body<Finish>(2).why, HasSubstr("ends without i1, which did not come back"));
  EXPECT_THAT(harness.notices.back(), HasSubstr("ends without i1, which did not come back"));
  EXPECT_TRUE(harness.has_closed(2));
  EXPECT_TRUE(harness.coordinator->is_over());
}

// Where it is killed by saving, as on a disk that is full.
TEST(Coordinator, OneThatIsKilledThenEachTimeIsNotWaitedForWithoutEnd) {
  CoordinatorHarness harness = before_the_end();
  complete(harness);
  harness.save({2});
  harness.close(1);
  for (int i = 0; i < harness.options.max_strikes; ++i) {
    EXPECT_FALSE(harness.has_closed(2)) << i;
    const ConnectionId again = 3 + static_cast<ConnectionId>(i);
    harness.open(again);
    Join join = harness.join("i1");
    join.outer_step = 1;
    join.hashes = {kSecond};
    harness.say(again, join);
    EXPECT_TRUE(harness.body<Finish>(again).is_done);
    harness.close(again);
  }
  harness.wait(1, {2});
  EXPECT_TRUE(harness.has_closed(2));
  EXPECT_TRUE(harness.coordinator->is_over());
}

// The coordinator is killed between the end and the last save; one island is killed, too.
TEST(Coordinator, ThoseThatHaveSavedStayForOneThatIsAwayAlsoAfterARestart) {
  CoordinatorHarness harness = before_the_end();
  complete(harness);
  harness.close(1);
  harness.save({2});
  harness.restart();
  harness.open(12);
  Join join = harness.join("i2");
  join.outer_step = 1;
  join.hashes = {kSecond};
  harness.say(12, join);
  harness.wait(harness.options.stays_for - 2, {12});
  EXPECT_EQ(harness.newest<Finish>(12), nullptr) << "1 may come back for the model";
  harness.wait(3, {12});
  harness.save({12});
  EXPECT_TRUE(harness.has_closed(12));
  EXPECT_TRUE(harness.coordinator->is_over());
}

// A machine that dies says nothing, and its connection stays.
TEST(Coordinator, OneThatIsSilentThenIsWaitedForAsWell) {
  CoordinatorHarness harness = before_the_end();
  complete(harness);
  harness.save({2});
  harness.wait(harness.options.out_after + 5, {2});
  EXPECT_TRUE(harness.has_closed(1));
  EXPECT_FALSE(harness.has_closed(2)) << "1 may come back for the model";
  harness.wait(harness.options.stays_for, {2});
  EXPECT_TRUE(harness.has_closed(2));
  EXPECT_TRUE(harness.coordinator->is_over());
}

TEST(Coordinator, WhoHasSavedTheFinalModelIsNotMissed) {
  CoordinatorHarness harness = before_the_end();
  complete(harness);
  harness.save({1});
  harness.close(1);
  harness.save({2});
  EXPECT_TRUE(harness.has_closed(2));
  EXPECT_TRUE(harness.coordinator->is_over());
}

// SIGTERM says so, too, and then the island may be started again.
TEST(Coordinator, TheEndWaitsForOneThatHasJustLeft) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  harness.say(3, Leave{.why = "it was stopped"});
  complete(harness);
  harness.wait(harness.options.stays_for - 1, {1, 2});
  EXPECT_EQ(harness.newest<Finish>(1), nullptr);
  harness.wait(2, {1, 2});
  harness.save({1, 2});
  EXPECT_TRUE(harness.coordinator->is_over());
}

TEST(Coordinator, NobodyStaysAtTheEndForOneThatLeftLongBefore) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  harness.say(3, Leave{.why = "a person said so"});
  harness.wait(harness.options.stays_for + 1, {1, 2});
  complete(harness);
  harness.save({1, 2});
  EXPECT_TRUE(harness.coordinator->is_over());
}

TEST(Coordinator, TheCoordinatorItselfStaysWhenAllHaveGone) {
  CoordinatorHarness harness = before_the_end();
  harness.come(3);
  harness.close(3);
  complete(harness);
  harness.close(1);
  harness.close(2);
  harness.wait(harness.options.stays_for - 1, {});
  EXPECT_FALSE(harness.coordinator->is_over());
  harness.wait(2, {});
  EXPECT_TRUE(harness.coordinator->is_over());
}

}  // namespace
}  // namespace atl::island
