// How a run ends whose coordinator was started again shortly before: whoever the ledger saw lately
// is waited for, whether it was training or not.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::atl::island::testing::CoordinatorHarness;
using ::atl::island::testing::kFirst;
using ::atl::island::testing::kSecond;

// A run of islands 1 and 2 with one outer step, which they have trained for; 3 is about to come.
CoordinatorHarness before_the_last_outer_step() {
  CoordinatorHarness harness;
  harness.options.plan.total_batches = 8;
  harness.restart();
  harness.come(1);
  harness.come(2);
  return harness;
}

// It has no state yet, and is not leased anything.
void come_without_state(CoordinatorHarness& harness, ConnectionId connection,
                        const std::string& name) {
  harness.open(connection);
  Join join = harness.join(name);
  join.outer_step = -1;
  join.hashes.clear();
  harness.say(connection, join);
}

// Islands 1 and 2 come back and end the run at once, by connections 11 and 12.
void restart_and_complete(CoordinatorHarness& harness) {
  harness.restart();
  const std::vector<BatchRange> leased[] = {{{0, 4}}, {{4, 8}}};
  for (const ConnectionId island : {11, 12}) {
    const auto at = static_cast<std::size_t>(island - 11);
    harness.open(island);
    harness.say(island, harness.join(fmt::format("i{}", at + 1), leased[at]));
    harness.say(island, harness.ready(leased[at]));
  }
  ASSERT_NE(harness.newest<Reduce>(11), nullptr) << "nobody else is waited for before the end";
  const Stamp stamp = {.outer_step = 0, .attempt = harness.newest<Reduce>(11)->stamp.attempt};
  for (const ConnectionId island : {11, 12}) harness.say(island, Prepared{kSecond}, stamp);
  ASSERT_TRUE(harness.coordinator->is_finished());
}

// Island 3 comes for the final state, by connection 13, and gets it from the others.
void expect_it_gets_the_state(CoordinatorHarness& harness) {
  for (const ConnectionId island : {11, 12}) {
    EXPECT_EQ(harness.newest<Finish>(island), nullptr) << "island 3 may come for what it has";
  }
  EXPECT_FALSE(harness.coordinator->is_over());
  come_without_state(harness, 13, "i3");
  EXPECT_FALSE(harness.body<Welcome>(13).sources.empty());
  harness.say(13, Synced{.outer_step = 1,
                         .hashes = {kSecond},
                         .answers = harness.newest<Welcome>(13)->stamp.sequence});
  harness.save({11, 12, 13});
  EXPECT_TRUE(harness.coordinator->is_over());
}

void expect_nobody_is_waited_for(CoordinatorHarness& harness) {
  harness.save({11, 12});
  EXPECT_TRUE(harness.coordinator->is_over());
}

TEST(CoordinatorEndAfterARestart, OneThatWasFetchingIsWaitedFor) {
  CoordinatorHarness harness = before_the_last_outer_step();
  come_without_state(harness, 3, "i3");
  harness.wait(100, {1, 2, 3});
  restart_and_complete(harness);
  harness.wait(harness.options.stays_for - 1, {11, 12});
  expect_it_gets_the_state(harness);
}

TEST(CoordinatorEndAfterARestart, OneThatHadJustLeftIsWaitedFor) {
  CoordinatorHarness harness = before_the_last_outer_step();
  harness.come(3);
  harness.say(3, Leave{.why = "it was stopped"});
  harness.wait(20, {1, 2});
  restart_and_complete(harness);
  harness.wait(harness.options.stays_for - 21, {11, 12});
  expect_it_gets_the_state(harness);
}

TEST(CoordinatorEndAfterARestart, OneThatHadJustBeenGivenUpIsWaitedFor) {
  CoordinatorHarness harness = before_the_last_outer_step();
  harness.come(3);
  harness.close(3);
  harness.wait(harness.options.out_after + 10, {1, 2});
  ASSERT_EQ(harness.coordinator->members().count(IslandState::kOut), 1);
  restart_and_complete(harness);
  harness.wait(harness.options.stays_for - 11, {11, 12});
  expect_it_gets_the_state(harness);
}

TEST(CoordinatorEndAfterARestart, SeveralRestartsChangeNothing) {
  CoordinatorHarness harness = before_the_last_outer_step();
  come_without_state(harness, 3, "i3");
  for (int i = 0; i < 3; ++i) {
    harness.restart();
    harness.wait(5, {});
  }
  restart_and_complete(harness);
  harness.wait(harness.options.stays_for - 1, {11, 12});
  expect_it_gets_the_state(harness);
}

TEST(CoordinatorEndAfterARestart, OneThatLeftLongBeforeIsNot) {
  CoordinatorHarness harness = before_the_last_outer_step();
  harness.come(3);
  harness.say(3, Leave{.why = "a person said so"});
  harness.wait(harness.options.stays_for + 1, {1, 2});
  restart_and_complete(harness);
  expect_nobody_is_waited_for(harness);
}

TEST(CoordinatorEndAfterARestart, OneThatDoesNotComeBackIsGivenUp) {
  CoordinatorHarness harness = before_the_last_outer_step();
  come_without_state(harness, 3, "i3");
  restart_and_complete(harness);
  harness.wait(harness.options.stays_for + 1, {11, 12});
  for (const ConnectionId island : {11, 12}) EXPECT_TRUE(harness.body<Finish>(island).is_done);
  expect_nobody_is_waited_for(harness);
}

// Island 3 is back first. Those that have the final state come later, on a busy machine.
TEST(CoordinatorEndAfterARestart, OneThatIsBehindWaitsForThoseThatHaveTheState) {
  CoordinatorHarness harness = before_the_last_outer_step();
  come_without_state(harness, 3, "i3");
  restart_and_complete(harness);
  harness.restart();
  come_without_state(harness, 23, "i3");
  harness.wait(20, {23});
  EXPECT_EQ(harness.newest<Finish>(23), nullptr) << "the others have not been told and will come";
  Join join = harness.join("i1");
  join.outer_step = 1;
  join.hashes = {kSecond};
  harness.open(21);
  harness.say(21, join);
  EXPECT_FALSE(harness.body<Resync>(23).sources.empty());
}

// Or they do not, and then it is told.
TEST(CoordinatorEndAfterARestart, OneThatIsBehindIsToldInTheEnd) {
  CoordinatorHarness harness = before_the_last_outer_step();
  come_without_state(harness, 3, "i3");
  restart_and_complete(harness);
  harness.restart();
  come_without_state(harness, 23, "i3");
  harness.wait(harness.options.stays_for + 4, {23});
  EXPECT_THAT(harness.body<Finish>(23).why, ::testing::HasSubstr("nobody is left"));
}

}  // namespace
}  // namespace atl::island
