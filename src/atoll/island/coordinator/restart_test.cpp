// What a coordinator that is started again knows, and what it learns from who comes back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/island/coordinator/coordinator.h"
#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::atl::island::testing::at_reduce;
using ::atl::island::testing::CoordinatorHarness;
using ::atl::island::testing::kFirst;
using ::atl::island::testing::kSecond;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CoordinatorRestart, ARestartTakesUpWhereTheLogEnds) {
  CoordinatorHarness harness = at_reduce();
  for (const ConnectionId island : {1, 2}) {
    harness.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  }
  harness.restart();
  // Island 1 has not heard the commit, and has its result; island 2 has.
  harness.come(11);
  harness.heard.clear();
  harness.open(1);
  harness.say(1, harness.join("i1", {{0, 4}, {8, 12}}));
  const Welcome& welcome = harness.body<Welcome>(1);
  EXPECT_EQ(welcome.outer_step, 1);
  EXPECT_THAT(welcome.hashes, ElementsAre(kSecond));
  EXPECT_TRUE(welcome.must_sync);
  EXPECT_TRUE(welcome.contributed);
  EXPECT_THAT(welcome.holds, ElementsAre(BatchRange{8, 12}));
  harness.say(1, Synced{.outer_step = 1,
                        .hashes = {kSecond},
                        .holds = {{8, 12}},
                        .answers = harness.newest<Welcome>(1)->stamp.sequence});
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kActive), 1);
  EXPECT_EQ(harness.newest<Lease>(1), nullptr) << "it has one";
}

// Island 1 is back first, and could do an outer step alone.
TEST(CoordinatorRestart, AfterARestartOneThatMissedOnlyTheCommitIsWaitedFor) {
  for (const bool answers : {true, false}) {
    CoordinatorHarness harness = at_reduce();
    for (const ConnectionId island : {1, 2}) {
      harness.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
    }
    harness.options.plan.grace_seconds = 10;
    harness.restart();
    harness.open(1);
    Join join = harness.join("i1", {{8, 12}});
    join.outer_step = 1;
    join.hashes = {kSecond};
    harness.say(1, join);
    Ready ready = harness.ready({{8, 12}});
    ready.base_hash = kSecond;
    harness.say(1, ready, {.outer_step = 1});
    harness.open(2);
    harness.say(2, harness.join("i2", {{4, 8}, {12, 16}}));
    EXPECT_TRUE(harness.body<Welcome>(2).must_sync);
    harness.wait(0.5, {1, 2});
    EXPECT_EQ(harness.newest<Reduce>(1)->stamp.outer_step, 0) << "it is not done alone";
    if (answers) {
      harness.say(2, Synced{.outer_step = 1,
                            .hashes = {kSecond},
                            .holds = {{12, 16}},
                            .answers = harness.newest<Welcome>(2)->stamp.sequence});
      ready.consumed = {{12, 16}};
      harness.say(2, ready, {.outer_step = 1});
      EXPECT_EQ(harness.body<Reduce>(1).participants.size(), 2);
    } else {
      harness.wait(4, {1, 2});
      EXPECT_EQ(harness.body<Reduce>(1).participants.size(), 1);
    }
    EXPECT_EQ(harness.newest<Reduce>(1)->stamp.outer_step, 1);
  }
}

constexpr StateHash kOther = {3, 3};

void come(CoordinatorHarness& harness, ConnectionId island, std::int64_t outer_step,
          std::vector<StateHash> hashes, std::vector<BatchRange> holds = {}) {
  Join join = harness.join(fmt::format("i{}", island), std::move(holds));
  join.outer_step = outer_step;
  join.hashes = std::move(hashes);
  harness.open(island);
  harness.say(island, join);
}

// Of two fragments the first has been exchanged by islands 1 and 2. It died between the log and the
// Commit, and was started again.
CoordinatorHarness after_the_first_of_two_fragments() {
  CoordinatorHarness harness;
  harness.options.plan.num_fragments = 2;
  harness.restart();
  for (const ConnectionId island : {1, 2}) come(harness, island, 0, {kFirst, kOther});
  harness.say(1, harness.ready({{0, 4}}));
  harness.say(2, harness.ready({{4, 8}}));
  for (const ConnectionId island : {1, 2}) {
    harness.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  }
  harness.restart();
  EXPECT_EQ(harness.coordinator->state().outer_step(), 1);
  EXPECT_THAT(harness.coordinator->state().hashes(1), IsEmpty());
  return harness;
}

// What has not been exchanged is in no log; without its hash no island could tell that the result
// it has is the one that was committed.
TEST(CoordinatorRestart, WhatWasNeverExchangedIsLearnedFromWhoIsBehind) {
  CoordinatorHarness harness = after_the_first_of_two_fragments();
  // Neither from who was never there, nor from who comes with nothing that was leased to it.
  for (const ConnectionId island : {3, 2}) come(harness, island, 0, {kFirst, {4, 4}});
  EXPECT_THAT(harness.coordinator->state().hashes(1), IsEmpty());
  come(harness, 1, 0, {kFirst, kOther}, {{0, 4}, {8, 12}});
  EXPECT_THAT(harness.body<Welcome>(1).hashes, ElementsAre(kSecond, kOther));
  EXPECT_TRUE(harness.body<Welcome>(1).contributed);
  EXPECT_THAT(harness.coordinator->state().hashes(1), ElementsAre(kSecond, kOther));
}

// Whoever comes first: the one that has it is the run's.
TEST(CoordinatorRestart, OneThatBeganWithSomethingElseIsNotBelieved) {
  CoordinatorHarness harness = after_the_first_of_two_fragments();
  come(harness, 3, 0, {{8, 8}, {9, 9}});
  come(harness, 1, 1, {kSecond, kOther}, {{8, 12}});
  EXPECT_FALSE(harness.body<Welcome>(1).must_sync);
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kActive), 1);
}

bool is_void(const CoordinatorHarness& harness, std::int64_t outer_step) {
  for (const LogRecord& record : harness.log) {
    const auto* voided = std::get_if<LogVoid>(&record.body);
    if (voided != nullptr && voided->first_outer_step <= outer_step) return true;
  }
  return false;
}

// It comes when the others' time to come back is nearly over, and has not answered Welcome yet.
TEST(CoordinatorRestart, NothingIsVoidWhoseResultAnIslandCameWith) {
  for (const bool has_result : {true, false}) {
    CoordinatorHarness harness = at_reduce();
    for (const ConnectionId island : {1, 2}) {
      harness.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
    }
    harness.restart();
    harness.come(2, {{4, 8}, {12, 16}});
    harness.wait(harness.options.void_after - 0.5, {2});
    Join join = harness.join("i1", {{0, 4}, {8, 12}});
    if (has_result) join.prepared = kSecond;
    harness.open(1);
    harness.say(1, join);
    harness.wait(1, {1, 2});
    if (!has_result) harness.confirm(1);
    EXPECT_EQ(is_void(harness, 0), !has_result);
    EXPECT_EQ(harness.body<Resync>(1).outer_step, has_result ? 1 : 0);
  }
}

// The hashes of outer step 0 are in no log, and the only island left has not said those that it
// has.
TEST(CoordinatorRestart, ARunFallsBackToABeginningWhoseHashesItHasToAskFor) {
  CoordinatorHarness harness = at_reduce();
  for (const ConnectionId island : {1, 2}) {
    harness.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  }
  harness.restart();
  come(harness, 1, 1, {kSecond});
  harness.say(1, ReduceFailed{.unreachable = {}, .why = "it is not at that outer step"});
  harness.wait(harness.options.void_after + 1, {1});
  EXPECT_FALSE(is_void(harness, 0));
  EXPECT_EQ(harness.body<Resync>(1).outer_step, 0);
  EXPECT_THAT(harness.body<Resync>(1).hashes, IsEmpty());
  harness.confirm(1);
  EXPECT_TRUE(is_void(harness, 0));
  EXPECT_THAT(harness.body<Resync>(1).hashes, ElementsAre(kFirst));
}

// An answer to an older question is none: it was given before the fetch that may be under way.
TEST(CoordinatorRestart, OnlyTheAnswerToTheQuestionMakesTheRestVoid) {
  CoordinatorHarness harness = at_reduce();
  for (const ConnectionId island : {1, 2}) {
    harness.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  }
  harness.restart();
  harness.come(1);
  const std::uint64_t older = harness.newest<Welcome>(1)->stamp.sequence;
  harness.wait(harness.options.void_after + 1, {1});
  ASSERT_NE(harness.newest<Resync>(1), nullptr);
  harness.say(1, Synced{.outer_step = 0, .hashes = {kFirst}, .holds = {}, .answers = older});
  harness.wait(1, {1});
  EXPECT_FALSE(is_void(harness, 0));
  harness.confirm(1);
  EXPECT_TRUE(is_void(harness, 0));
}

// It has the result of the one before, and must know that its part is in it.
TEST(CoordinatorRestart, AfterAVoidItIsKnownWhoIsInTheNewestOuterStepThatStands) {
  CoordinatorHarness harness = at_reduce();
  for (const ConnectionId island : {1, 2}) {
    harness.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  }
  Ready ready = harness.ready({{8, 12}});
  ready.base_hash = kSecond;
  harness.say(1, ready, {.outer_step = 1});
  harness.close(2);
  harness.wait(5, {1});
  harness.say(1, Prepared{kOther}, {.outer_step = 1, .attempt = 1});
  ASSERT_EQ(harness.coordinator->state().outer_step(), 2);
  harness.close(1);
  come(harness, 3, 1, {kSecond});
  harness.wait(harness.options.void_after + 1, {3});
  harness.confirm(3, {kSecond});
  ASSERT_TRUE(is_void(harness, 1));
  ASSERT_FALSE(is_void(harness, 0));
  Join join = harness.join("i2", {{4, 8}, {12, 16}});
  join.prepared = kSecond;
  harness.open(2);
  harness.say(2, join);
  EXPECT_TRUE(harness.body<Welcome>(2).contributed);
}

}  // namespace
}  // namespace atl::island
