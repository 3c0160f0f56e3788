// What an island does after the end of the run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/island/client/testing.h"

namespace atl::island {
namespace {

using testing::commit_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kFirst;
using testing::kSecond;
using testing::MemberHarness;

// It has the final state, and has heard of the end.
MemberHarness after_the_end() {
  MemberHarness harness;
  harness.welcome();
  harness.receive(Finish{.why = "done"});
  return harness;
}

// A coordinator that was started again.
void come_back(MemberHarness& harness, const Welcome& welcome) {
  harness.happen(CoordinatorReached{});
  Stamp stamp = harness.stamp(welcome.outer_step);
  stamp.fence = 2;
  harness.happen(CoordinatorSaid{{stamp, welcome}});
}

void hear_of_the_end_again(MemberHarness& harness) {
  Stamp stamp = harness.stamp(0);
  stamp.fence = 2;
  harness.happen(CoordinatorSaid{{stamp, Finish{.why = "done"}}});
}

TEST(MemberEnd, ItStaysForOthersUntilItIsLetGo) {
  MemberHarness harness = after_the_end();
  EXPECT_TRUE(harness.newest<Halt>().is_done);
  EXPECT_EQ(harness.count<Part>(), 0);
  harness.now += 10;
  harness.happen(MemberTicked{});
  EXPECT_EQ(harness.said<Heartbeat>().sent, harness.now) << "it is no suspect";
  harness.receive(PutState{.hashes = {kFirst}});
  EXPECT_EQ(harness.count<UploadState>(), 1);
  EXPECT_FALSE(harness.has_said<Leave>()) << "the model is not saved yet";
  harness.happen(LeaveWanted{"saved"});
  EXPECT_EQ(harness.said<Leave>().why, "saved");
  EXPECT_EQ(harness.count<Part>(), 0);
  harness.receive(Finish{.why = "without oslo"});
  EXPECT_EQ(harness.newest<Part>().why, "without oslo");
  EXPECT_EQ(harness.count<Halt>(), 1);
}

// Its model may be what an island needs that was killed as well.
TEST(MemberEnd, ItJoinsACoordinatorThatWasStartedAgainWithTheFinalState) {
  MemberHarness harness = after_the_end();
  harness.happen(LeaveWanted{"saved"});
  harness.actions.clear();
  harness.happen(CoordinatorLost{"it was killed"});
  EXPECT_EQ(harness.count<Connect>(), 1);
  come_back(harness, {.island = 1, .outer_step = 0, .hashes = {kFirst}});
  EXPECT_EQ(harness.said<Join>().outer_step, 0);
  EXPECT_THAT(harness.said<Join>().holds, IsEmpty());
  EXPECT_FALSE(harness.has_said<Leave>()) << "before the coordinator has said Finish it would go";
  hear_of_the_end_again(harness);
  EXPECT_TRUE(harness.has_said<Leave>());
  EXPECT_EQ(harness.count<Part>(), 0);
  hear_of_the_end_again(harness);
  EXPECT_EQ(harness.count<Part>(), 1);
}

TEST(MemberEnd, WhatItIsAskedForAfterwardsItSaysThatItHas) {
  MemberHarness harness = after_the_end();
  harness.happen(CoordinatorLost{"it was killed"});
  come_back(harness, {.island = 1, .outer_step = 0, .hashes = {kFirst}, .must_sync = true});
  EXPECT_EQ(harness.said<Synced>().answers, harness.sequence);
  EXPECT_EQ(harness.count<FetchState>(), 0);
}

// A run that has lost its last outer steps is no run that this island is in any more.
TEST(MemberEnd, ItGoesWhereTheRunHasAnotherState) {
  MemberHarness harness = after_the_end();
  harness.happen(CoordinatorLost{"it was killed"});
  come_back(harness, {.island = 1, .outer_step = 0, .hashes = {kSecond}, .must_sync = true});
  EXPECT_THAT(harness.newest<Part>().why, HasSubstr("goes on from outer step 0 again"));
}

TEST(MemberEnd, ItDoesNotStayForEverForACoordinatorThatDoesNotComeBack) {
  MemberHarness harness = after_the_end();
  harness.happen(CoordinatorLost{"it was killed"});
  harness.now += MemberOptions().stays_for;
  harness.happen(MemberTicked{});
  EXPECT_EQ(harness.count<Part>(), 0);
  harness.now += 1;
  harness.happen(MemberTicked{});
  EXPECT_THAT(harness.newest<Part>().why, HasSubstr("no coordinator for 61 s"));
  EXPECT_EQ(harness.count<Halt>(), 1) << "it has the final model: that is no error";
}

// It was killed after it had saved the final model, and the others did not wait for it.
TEST(MemberEnd, OneThatIsStartedAgainWithTheFinalModelNeedsNoCoordinator) {
  for (const bool has_final_state : {true, false}) {
    Member member({.name = "lyon", .has_final_state = has_final_state},
                  {.outer_step = 1, .hashes = {kSecond}});
    member.handle({0, CoordinatorLost{"connection refused"}});
    for (const MemberAction& action : member.handle({9, CoordinatorLost{"connection refused"}})) {
      EXPECT_TRUE(std::holds_alternative<Connect>(action));
    }
    const std::vector<MemberAction> then = member.handle({11, CoordinatorLost{"refused"}});
    EXPECT_EQ(member.has_halted(), has_final_state);
    const auto* halt = then.size() > 1 ? std::get_if<Halt>(&then[1]) : nullptr;
    EXPECT_EQ(halt != nullptr && halt->is_done, has_final_state);
  }
}

// An island that still makes the last outer step, or asks for it.
TEST(MemberEnd, WhoLacksTheLastOuterStepComesBackForItAndIsToldWhenNobodyGivesIt) {
  MemberHarness harness;
  harness.welcome();
  harness.receive(commit_of(kSecond, 2), 0, 1);  // it has no result of that
  harness.receive(Finish{.why = "done"}, 1);
  EXPECT_EQ(harness.count<Halt>(), 0);
  harness.happen(CoordinatorLost{"it was killed"});
  EXPECT_EQ(harness.count<Halt>(), 0);
  EXPECT_EQ(harness.count<Connect>(), 1);
  MemberHarness other;
  other.welcome();
  other.receive(commit_of(kSecond, 2), 0, 1);
  other.receive(Finish{.why = "done"}, 1);
  other.receive(Finish{.why = "done"}, 1);
  EXPECT_THAT(other.newest<Halt>().why, HasSubstr("nobody was left to get the model"));
  EXPECT_EQ(other.count<Part>(), 1);
}

}  // namespace
}  // namespace atl::island
