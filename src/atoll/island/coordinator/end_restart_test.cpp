// How a run ends whose coordinator was started again shortly before: whoever the ledger saw lately
// is waited for, whether it was training or not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::atl::island::testing::kFirst;
using ::atl::island::testing::kSecond;
using ::atl::island::testing::Stage;

// A run of islands 1 and 2 with one outer step, which they have trained for; 3 is about to come.
Stage before_the_last_outer_step() {
  Stage stage;
  stage.options.plan.total_batches = 8;
  stage.restart();
  stage.come(1);
  stage.come(2);
  return stage;
}

// It has no state yet, and is not leased anything.
void come_without_state(Stage& stage, ConnectionId connection, const std::string& name) {
  stage.open(connection);
  Join join = stage.join(name);
  join.outer_step = -1;
  join.hashes.clear();
  stage.say(connection, join);
}

// Islands 1 and 2 come back and end the run at once, by connections 11 and 12.
void restart_and_complete(Stage& stage) {
  stage.restart();
  const std::vector<BatchRange> leased[] = {{{0, 4}}, {{4, 8}}};
  for (const ConnectionId island : {11, 12}) {
    const auto at = static_cast<std::size_t>(island - 11);
    stage.open(island);
    stage.say(island, stage.join(fmt::format("i{}", at + 1), leased[at]));
    stage.say(island, stage.ready(leased[at]));
  }
  ASSERT_NE(stage.newest<Reduce>(11), nullptr) << "nobody else is waited for before the end";
  const Stamp stamp = {.outer_step = 0, .attempt = stage.newest<Reduce>(11)->stamp.attempt};
  for (const ConnectionId island : {11, 12}) stage.say(island, Prepared{kSecond}, stamp);
  ASSERT_TRUE(stage.coordinator->is_finished());
}

// Island 3 comes for the final state, by connection 13, and gets it from the others.
void expect_it_gets_the_state(Stage& stage) {
  for (const ConnectionId island : {11, 12}) {
    EXPECT_EQ(stage.newest<Finish>(island), nullptr) << "island 3 may come for what it has";
  }
  EXPECT_FALSE(stage.coordinator->is_over());
  come_without_state(stage, 13, "i3");
  EXPECT_FALSE(stage.body<Welcome>(13).sources.empty());
  stage.say(13, Synced{.outer_step = 1,
                       .hashes = {kSecond},
                       .answers = stage.newest<Welcome>(13)->stamp.sequence});
  for (const ConnectionId island : {11, 12, 13}) {
    EXPECT_TRUE(stage.body<Finish>(island).is_done);
  }
  EXPECT_TRUE(stage.coordinator->is_over());
}

void expect_nobody_is_waited_for(const Stage& stage) {
  EXPECT_TRUE(stage.coordinator->is_over());
}

TEST(CoordinatorEndAfterARestart, OneThatWasFetchingIsWaitedFor) {
  Stage stage = before_the_last_outer_step();
  come_without_state(stage, 3, "i3");
  stage.wait(100, {1, 2, 3});
  restart_and_complete(stage);
  stage.wait(stage.options.stays_for - 1, {11, 12});
  expect_it_gets_the_state(stage);
}

TEST(CoordinatorEndAfterARestart, OneThatHadJustLeftIsWaitedFor) {
  Stage stage = before_the_last_outer_step();
  stage.come(3);
  stage.say(3, Leave{.why = "it was stopped"});
  stage.wait(20, {1, 2});
  restart_and_complete(stage);
  stage.wait(stage.options.stays_for - 21, {11, 12});
  expect_it_gets_the_state(stage);
}

TEST(CoordinatorEndAfterARestart, OneThatHadJustBeenGivenUpIsWaitedFor) {
  Stage stage = before_the_last_outer_step();
  stage.come(3);
  stage.close(3);
  stage.wait(stage.options.out_after + 10, {1, 2});
  ASSERT_EQ(stage.coordinator->members().count(MemberState::kOut), 1);
  restart_and_complete(stage);
  stage.wait(stage.options.stays_for - 11, {11, 12});
  expect_it_gets_the_state(stage);
}

TEST(CoordinatorEndAfterARestart, SeveralRestartsChangeNothing) {
  Stage stage = before_the_last_outer_step();
  come_without_state(stage, 3, "i3");
  for (int i = 0; i < 3; ++i) {
    stage.restart();
    stage.wait(5, {});
  }
  restart_and_complete(stage);
  stage.wait(stage.options.stays_for - 1, {11, 12});
  expect_it_gets_the_state(stage);
}

TEST(CoordinatorEndAfterARestart, OneThatLeftLongBeforeIsNot) {
  Stage stage = before_the_last_outer_step();
  stage.come(3);
  stage.say(3, Leave{.why = "a person said so"});
  stage.wait(stage.options.stays_for + 1, {1, 2});
  restart_and_complete(stage);
  expect_nobody_is_waited_for(stage);
}

TEST(CoordinatorEndAfterARestart, OneThatDoesNotComeBackIsGivenUp) {
  Stage stage = before_the_last_outer_step();
  come_without_state(stage, 3, "i3");
  restart_and_complete(stage);
  stage.wait(stage.options.stays_for + 1, {11, 12});
  for (const ConnectionId island : {11, 12}) EXPECT_TRUE(stage.body<Finish>(island).is_done);
  expect_nobody_is_waited_for(stage);
}

// Island 3 is back first. Those that have the final state come later, on a busy machine.
TEST(CoordinatorEndAfterARestart, OneThatIsBehindWaitsForThoseThatHaveTheState) {
  Stage stage = before_the_last_outer_step();
  come_without_state(stage, 3, "i3");
  restart_and_complete(stage);
  stage.restart();
  come_without_state(stage, 23, "i3");
  stage.wait(20, {23});
  EXPECT_EQ(stage.newest<Finish>(23), nullptr) << "the others have not been told and will come";
  Join join = stage.join("i1");
  join.outer_step = 1;
  join.hashes = {kSecond};
  stage.open(21);
  stage.say(21, join);
  EXPECT_FALSE(stage.body<Resync>(23).sources.empty());
}

// Or they do not, and then it is told.
TEST(CoordinatorEndAfterARestart, OneThatIsBehindIsToldInTheEnd) {
  Stage stage = before_the_last_outer_step();
  come_without_state(stage, 3, "i3");
  restart_and_complete(stage);
  stage.restart();
  come_without_state(stage, 23, "i3");
  stage.wait(stage.options.stays_for + 4, {23});
  EXPECT_THAT(stage.body<Finish>(23).why, ::testing::HasSubstr("nobody is left"));
}

}  // namespace
}  // namespace atl::island
