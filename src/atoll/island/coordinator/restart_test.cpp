// What a coordinator that is started again knows, and what it learns from who comes back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/island/coordinator/coordinator.h"
#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::atl::island::testing::at_reduce;
using ::atl::island::testing::kFirst;
using ::atl::island::testing::kSecond;
using ::atl::island::testing::Stage;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CoordinatorRestart, ARestartTakesUpWhereTheLogEnds) {
  Stage stage = at_reduce();
  for (const ConnectionId island : {1, 2}) {
    stage.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  }
  stage.restart();
  // Island 1 has not heard the commit, and has its result; island 2 has.
  stage.come(11);
  stage.heard.clear();
  stage.open(1);
  stage.say(1, stage.join("i1", {{0, 4}, {8, 12}}));
  const Welcome& welcome = stage.body<Welcome>(1);
  EXPECT_EQ(welcome.outer_step, 1);
  EXPECT_THAT(welcome.hashes, ElementsAre(kSecond));
  EXPECT_TRUE(welcome.must_sync);
  EXPECT_TRUE(welcome.contributed);
  EXPECT_THAT(welcome.holds, ElementsAre(BatchRange{8, 12}));
  stage.say(1, Synced{.outer_step = 1,
                      .hashes = {kSecond},
                      .holds = {{8, 12}},
                      .answers = stage.newest<Welcome>(1)->stamp.sequence});
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kActive), 1);
  EXPECT_EQ(stage.newest<Lease>(1), nullptr) << "it has one";
}

// Island 1 is back first, and could do an outer step alone.
TEST(CoordinatorRestart, AfterARestartOneThatMissedOnlyTheCommitIsWaitedFor) {
  for (const bool answers : {true, false}) {
    Stage stage = at_reduce();
    for (const ConnectionId island : {1, 2}) {
      stage.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
    }
    stage.options.plan.grace_seconds = 10;
    stage.restart();
    stage.open(1);
    Join join = stage.join("i1", {{8, 12}});
    join.outer_step = 1;
    join.hashes = {kSecond};
    stage.say(1, join);
    Ready ready = stage.ready({{8, 12}});
    ready.base_hash = kSecond;
    stage.say(1, ready, {.outer_step = 1});
    stage.open(2);
    stage.say(2, stage.join("i2", {{4, 8}, {12, 16}}));
    EXPECT_TRUE(stage.body<Welcome>(2).must_sync);
    stage.wait(0.5, {1, 2});
    EXPECT_EQ(stage.newest<Reduce>(1)->stamp.outer_step, 0) << "it is not done alone";
    if (answers) {
      stage.say(2, Synced{.outer_step = 1,
                          .hashes = {kSecond},
                          .holds = {{12, 16}},
                          .answers = stage.newest<Welcome>(2)->stamp.sequence});
      ready.consumed = {{12, 16}};
      stage.say(2, ready, {.outer_step = 1});
      EXPECT_EQ(stage.body<Reduce>(1).participants.size(), 2);
    } else {
      stage.wait(4, {1, 2});
      EXPECT_EQ(stage.body<Reduce>(1).participants.size(), 1);
    }
    EXPECT_EQ(stage.newest<Reduce>(1)->stamp.outer_step, 1);
  }
}

constexpr StateHash kOther = {3, 3};

void come(Stage& stage, ConnectionId island, std::int64_t outer_step, std::vector<StateHash> hashes,
          std::vector<BatchRange> holds = {}) {
  Join join = stage.join(fmt::format("i{}", island), std::move(holds));
  join.outer_step = outer_step;
  join.hashes = std::move(hashes);
  stage.open(island);
  stage.say(island, join);
}

// Of two fragments the first has been exchanged by islands 1 and 2. It died between the log and the
// Commit, and was started again.
Stage after_the_first_of_two_fragments() {
  Stage stage;
  stage.options.plan.num_fragments = 2;
  stage.restart();
  for (const ConnectionId island : {1, 2}) come(stage, island, 0, {kFirst, kOther});
  stage.say(1, stage.ready({{0, 4}}));
  stage.say(2, stage.ready({{4, 8}}));
  for (const ConnectionId island : {1, 2}) {
    stage.say(island, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  }
  stage.restart();
  EXPECT_EQ(stage.coordinator->state().outer_step(), 1);
  EXPECT_THAT(stage.coordinator->state().hashes(1), IsEmpty());
  return stage;
}

// What has not been exchanged is in no log; without its hash no island could tell that the result
// it has is the one that was committed.
TEST(CoordinatorRestart, WhatWasNeverExchangedIsLearnedFromWhoIsBehind) {
  Stage stage = after_the_first_of_two_fragments();
  // Neither from who was never there, nor from who comes with nothing that was leased to it.
  for (const ConnectionId island : {3, 2}) come(stage, island, 0, {kFirst, {4, 4}});
  EXPECT_THAT(stage.coordinator->state().hashes(1), IsEmpty());
  come(stage, 1, 0, {kFirst, kOther}, {{0, 4}, {8, 12}});
  EXPECT_THAT(stage.body<Welcome>(1).hashes, ElementsAre(kSecond, kOther));
  EXPECT_TRUE(stage.body<Welcome>(1).contributed);
  EXPECT_THAT(stage.coordinator->state().hashes(1), ElementsAre(kSecond, kOther));
}

// Whoever comes first: the one that has it is the run's.
TEST(CoordinatorRestart, OneThatBeganWithSomethingElseIsNotBelieved) {
  Stage stage = after_the_first_of_two_fragments();
  come(stage, 3, 0, {{8, 8}, {9, 9}});
  come(stage, 1, 1, {kSecond, kOther}, {{8, 12}});
  EXPECT_FALSE(stage.body<Welcome>(1).must_sync);
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kActive), 1);
}

}  // namespace
}  // namespace atl::island
