// How a run ends: who stays, and until when.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::atl::island::testing::kFirst;
using ::atl::island::testing::kSecond;
using ::atl::island::testing::Stage;

// A run that outer step 0 completes, once both islands have said Prepared.
Stage before_the_end() {
  Stage stage;
  stage.options.plan.total_batches = 8;
  stage.restart();
  stage.come(1);
  stage.come(2);
  stage.say(1, stage.ready({{0, 4}}));
  stage.say(2, stage.ready({{4, 8}}));
  return stage;
}

void complete(Stage& stage) {
  const Stamp stamp = {.outer_step = 0, .attempt = stage.newest<Reduce>(1)->stamp.attempt};
  stage.say(1, Prepared{kSecond}, stamp);
  stage.say(2, Prepared{kSecond}, stamp);
  ASSERT_TRUE(stage.coordinator->is_finished());
}

TEST(Coordinator, WhoHasTheFinalStateStaysForThoseThatFetchIt) {
  Stage stage = before_the_end();
  stage.open(3);
  Join late = stage.join("i3");
  late.outer_step = -1;
  late.hashes.clear();
  stage.say(3, late);
  complete(stage);
  stage.wait(20, {1, 2, 3});
  EXPECT_EQ(stage.newest<Finish>(1), nullptr) << "island 3 is fetching from it";
  EXPECT_FALSE(stage.coordinator->is_over());
  stage.say(3, Synced{.outer_step = 1,
                      .hashes = {kSecond},
                      .answers = stage.newest<Welcome>(3)->stamp.sequence});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_TRUE(stage.body<Finish>(island).is_done);
  EXPECT_TRUE(stage.coordinator->is_over());
}

TEST(Coordinator, TheEndWaitsForThoseThatWentAwayJustBefore) {
  Stage stage = before_the_end();
  stage.come(3);
  stage.close(3);
  complete(stage);
  stage.wait(stage.options.stays_for - 1, {1, 2});
  EXPECT_EQ(stage.newest<Finish>(1), nullptr) << "island 3 may come for what it has";
  stage.wait(2, {1, 2});
  for (const ConnectionId island : {1, 2}) EXPECT_TRUE(stage.body<Finish>(island).is_done);
  EXPECT_TRUE(stage.coordinator->is_over());
}

TEST(Coordinator, OneThatWakesAfterTheEndGetsTheFinalState) {
  Stage stage = before_the_end();
  stage.come(3);
  stage.wait(3, {1, 2});
  ASSERT_EQ(stage.coordinator->members().count(MemberState::kSuspect), 1);
  complete(stage);
  // It is heard again before it has heard of the end itself.
  stage.say(3, Heartbeat{.sent = stage.now});
  stage.wait(0.5, {1, 2});
  EXPECT_EQ(stage.newest<Finish>(1), nullptr);
  stage.say(3, ReduceFailed{.unreachable = {}, .why = "it has no result"});
  stage.say(3, Synced{.outer_step = 1,
                      .hashes = {kSecond},
                      .answers = stage.newest<Resync>(3)->stamp.sequence});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_TRUE(stage.body<Finish>(island).is_done);
}

TEST(Coordinator, AtTheEndOneThatIsSilentForAMomentIsStillASource) {
  Stage stage = before_the_end();
  stage.come(3);
  stage.close(3);
  complete(stage);
  stage.wait(3, {});  // both others are suspects now
  ASSERT_EQ(stage.coordinator->members().count(MemberState::kActive), 0);
  stage.open(4);
  Join late = stage.join("i3");
  late.outer_step = 0;
  late.hashes = {kFirst};
  stage.say(4, late);
  stage.wait(5, {4});
  for (const ConnectionId island : {1, 2, 4}) EXPECT_EQ(stage.newest<Finish>(island), nullptr);
  stage.say(1, Heartbeat{.sent = stage.now}, {.outer_step = 1});
  EXPECT_EQ(stage.body<Resync>(4).sources.size(), 1U);
}

TEST(Coordinator, OneThatWakesWithTheFinalStateEndsTheWait) {
  Stage stage = before_the_end();
  stage.come(3);
  stage.wait(3, {1, 2});
  complete(stage);
  stage.say(3, Heartbeat{.sent = stage.now}, {.outer_step = 1});
  stage.wait(0.25, {1, 2});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_TRUE(stage.body<Finish>(island).is_done);
}

// Over a slow link it takes a while to make the last outer step of what the others contributed.
TEST(Coordinator, TheEndWaitsForThoseThatAreStillFetchingItsLastOuterStep) {
  Stage stage = before_the_end();
  stage.come(3);
  complete(stage);
  stage.wait(60, {1, 2, 3});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_EQ(stage.newest<Finish>(island), nullptr);
  stage.say(3, Heartbeat{.sent = stage.now}, {.outer_step = 1});
  stage.wait(0.25, {1, 2});
  for (const ConnectionId island : {1, 2, 3}) EXPECT_TRUE(stage.body<Finish>(island).is_done);
}

TEST(Coordinator, WhoIsStillMakingTheLastOuterStepIsToldWhenNobodyIsLeftToFetchItFrom) {
  Stage stage = before_the_end();
  stage.come(3);
  complete(stage);
  stage.close(1);
  stage.close(2);
  stage.wait(0.25, {3});
  ASSERT_NE(stage.newest<Finish>(3), nullptr) << "which it leaves until it has the result";
  stage.say(3, ReduceFailed{.unreachable = {1, 2}, .why = "both are gone"});
  ASSERT_TRUE(stage.body<Resync>(3).sources.empty());
  const std::size_t num_heard = stage.heard[3].size();
  stage.wait(stage.options.stays_for - 1, {3});
  EXPECT_EQ(stage.heard[3].size(), num_heard) << "they have not been told of the end and may come";
  stage.wait(5, {3});
  ASSERT_GT(stage.heard[3].size(), num_heard);
  EXPECT_TRUE(std::holds_alternative<Finish>(stage.heard[3].back().body));
}

// SIGTERM says so, too, and then the island may be started again.
TEST(Coordinator, TheEndWaitsForOneThatHasJustLeft) {
  Stage stage = before_the_end();
  stage.come(3);
  stage.say(3, Leave{.why = "it was stopped"});
  complete(stage);
  stage.wait(stage.options.stays_for - 1, {1, 2});
  EXPECT_EQ(stage.newest<Finish>(1), nullptr);
  stage.wait(2, {1, 2});
  for (const ConnectionId island : {1, 2}) EXPECT_TRUE(stage.body<Finish>(island).is_done);
  EXPECT_TRUE(stage.coordinator->is_over());
}

TEST(Coordinator, NobodyStaysAtTheEndForOneThatLeftLongBefore) {
  Stage stage = before_the_end();
  stage.come(3);
  stage.say(3, Leave{.why = "a person said so"});
  stage.wait(stage.options.stays_for + 1, {1, 2});
  complete(stage);
  for (const ConnectionId island : {1, 2}) EXPECT_TRUE(stage.body<Finish>(island).is_done);
  EXPECT_TRUE(stage.coordinator->is_over());
}

TEST(Coordinator, TheCoordinatorItselfStaysWhenAllHaveGone) {
  Stage stage = before_the_end();
  stage.come(3);
  stage.close(3);
  complete(stage);
  stage.close(1);
  stage.close(2);
  stage.wait(stage.options.stays_for - 1, {});
  EXPECT_FALSE(stage.coordinator->is_over());
  stage.wait(2, {});
  EXPECT_TRUE(stage.coordinator->is_over());
}

}  // namespace
}  // namespace atl::island
