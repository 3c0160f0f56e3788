#include "atoll/island/client/member.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/island/client/testing.h"

namespace atl::island {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using testing::commit_of;
using testing::kFirst;
using testing::kSecond;
using testing::kThird;
using testing::MemberHarness;

TEST(Member, SwapsWhatIsCommittedAndKnowsItsPart) {
  for (const IslandId participant : {1U, 2U}) {
    MemberHarness harness;
    harness.prepare();
    EXPECT_EQ(harness.said<Prepared>().hash, kSecond);
    harness.receive(commit_of(kSecond, participant), 0, 1);
    EXPECT_EQ(harness.newest<Swap>().was_mine, participant == 1);
    EXPECT_EQ(harness.member.outer_step(), 1);
    EXPECT_THAT(harness.member.hashes(), ElementsAre(kSecond));
    EXPECT_EQ(harness.member.holds().empty(), participant == 1);
  }
}

TEST(Member, AskedWhatTheRunsStateIsItAnswersWithItsOwn) {
  MemberHarness harness;
  harness.welcome();
  harness.receive(
      Resync{.outer_step = 0, .sources = {{1, "lyon:1"}}, .why = "it is the newest left"});
  EXPECT_THAT(harness.said<Synced>().hashes, ElementsAre(kFirst));
  EXPECT_EQ(harness.count<FetchState>(), 0);
}

TEST(Member, AStateWithoutHashesIsNotFetched) {
  MemberHarness harness({.outer_step = 3, .hashes = {kThird}});
  harness.receive(Welcome{.island = 1, .outer_step = 0, .hashes = {kFirst}, .must_sync = true});
  harness.receive(
      Resync{.outer_step = 0, .sources = {{2, "oslo:1"}}, .why = "it is the newest left"});
  EXPECT_EQ(harness.count<FetchState>(), 0);
}

// An island that is welcome, has outer step 0 and is fetching outer step 1.
MemberHarness fetching() {
  MemberHarness harness;
  harness.welcome();
  harness.receive(Resync{.outer_step = 1, .hashes = {kSecond}, .sources = {{2, "b:1"}}}, 1);
  EXPECT_EQ(harness.count<FetchState>(), 1);
  return harness;
}

TEST(Member, SaysThatItHasAStateOnlyWhenItFetchesNoOther) {
  MemberHarness harness = fetching();
  harness.receive(Resync{.outer_step = 0, .hashes = {kFirst}, .why = "it is the newest left"}, 1);
  EXPECT_EQ(harness.count<StopFetch>(), 1);
  EXPECT_FALSE(harness.has_said<Synced>());
  harness.happen(FetchStopped{});
  EXPECT_THAT(harness.said<Synced>().hashes, ElementsAre(kFirst));
  EXPECT_EQ(harness.said<Synced>().outer_step, 0);
}

TEST(Member, WhatItFetchedAllTheSameItSaysAnew) {
  MemberHarness harness = fetching();
  harness.receive(Resync{.outer_step = 0, .hashes = {kFirst}, .why = "it is the newest left"}, 1);
  const int connects = harness.count<Connect>();
  harness.happen(StateFetched{1, {kSecond}});
  harness.happen(FetchStopped{});
  EXPECT_FALSE(harness.has_said<Synced>());
  EXPECT_EQ(harness.count<Connect>(), connects + 1);
  harness.happen(CoordinatorReached{});
  EXPECT_THAT(harness.said<Join>().hashes, ElementsAre(kSecond));
}

// The end of the fetch that was stopped is not that of the next one.
TEST(Member, AFetchIsUnderWayUntilItsOwnEnd) {
  MemberHarness harness = fetching();
  harness.receive(Resync{.outer_step = 1, .hashes = {kThird}, .sources = {{3, "c:1"}}}, 1);
  EXPECT_EQ(harness.count<FetchState>(), 2);
  EXPECT_EQ(harness.count<StopFetch>(), 1);
  harness.happen(FetchFailed{"no route"});
  harness.happen(FetchStopped{});
  harness.receive(Resync{.outer_step = 0, .hashes = {kFirst}, .why = "it is the newest left"}, 1);
  EXPECT_EQ(harness.count<StopFetch>(), 2);
  EXPECT_FALSE(harness.has_said<Synced>());
  harness.happen(FetchStopped{});
  EXPECT_THAT(harness.said<Synced>().hashes, ElementsAre(kFirst));
}

TEST(Member, JoinsOnlyWhenItFetchesNothing) {
  MemberHarness harness = fetching();
  harness.happen(CoordinatorLost{"it died"});
  harness.actions.clear();
  harness.happen(CoordinatorReached{});
  EXPECT_EQ(harness.count<StopFetch>(), 1);
  EXPECT_FALSE(harness.has_said<Join>());
  harness.happen(FetchStopped{});
  EXPECT_THAT(harness.said<Join>().hashes, ElementsAre(kFirst));
}

TEST(Member, NeverSwapsAnotherResultThanWasCommitted) {
  MemberHarness harness;
  harness.prepare();
  harness.receive(commit_of(kThird, 1), 0, 1);
  EXPECT_EQ(harness.count<Swap>(), 0);
  EXPECT_THAT(harness.said<ReduceFailed>().why, HasSubstr("another hash"));
}

TEST(Member, DropsLowerStampsAndSequencesItHasSeen) {
  MemberHarness harness;
  harness.welcome();
  Stamp old = harness.stamp(0, 1);
  harness.happen(CoordinatorSaid{{harness.stamp(0, 2), Reduce{}}});
  const int reduces = harness.count<StartReduce>();
  old.sequence = 1000;  // newer by its number, older by its attempt
  harness.happen(CoordinatorSaid{{old, AbandonReduce{}}});
  EXPECT_EQ(harness.count<StopReduce>(), 0);
  Stamp seen = harness.stamp(0, 2);
  seen.sequence = 2;
  harness.happen(CoordinatorSaid{{seen, Reduce{}}});
  EXPECT_EQ(harness.count<StartReduce>(), reduces);
}

TEST(Member, GoesOnAfterACoordinatorRestart) {
  MemberHarness harness;
  harness.welcome();
  harness.receive(Lease{.ranges = {{0, 4}}, .inner_steps = 4});
  harness.happen(CoordinatorLost{"it died"});
  EXPECT_EQ(harness.count<Connect>(), 1);
  harness.hand_in();  // the trainer has not noticed
  harness.happen(CoordinatorReached{});
  EXPECT_THAT(harness.said<Join>().holds, ElementsAre(BatchRange{0, 4}));
  Stamp newer = {.fence = 2, .view = 1, .sequence = 1};
  harness.happen(
      CoordinatorSaid{{newer, Welcome{.island = 1, .hashes = {kFirst}, .holds = {{0, 4}}}}});
  EXPECT_THAT(harness.said<Ready>().consumed, ElementsAre(BatchRange{0, 4}));
}

TEST(Member, SwapsWhatWasCommittedWhileItWasAway) {
  for (const bool contributed : {true, false}) {
    MemberHarness harness;
    harness.prepare();
    harness.happen(CoordinatorLost{"it died"});
    harness.happen(CoordinatorReached{});
    const std::vector<BatchRange> holds =
        contributed ? std::vector<BatchRange>() : std::vector<BatchRange>{{0, 4}};
    harness.receive(Welcome{.island = 1,
                            .outer_step = 1,
                            .hashes = {kSecond},
                            .must_sync = true,
                            .holds = holds,
                            .contributed = contributed},
                    1);
    EXPECT_EQ(harness.newest<Swap>().was_mine, contributed);
    EXPECT_EQ(harness.count<FetchState>(), 0);
    EXPECT_EQ(harness.said<Synced>().answers, harness.sequence);
    EXPECT_EQ(harness.said<Synced>().holds, holds);
    EXPECT_EQ(harness.count<Adopt>(), 0);
  }
}

TEST(Member, DropsWorkOnBatchesThatAreNotItsOwnAnyMore) {
  MemberHarness harness({.outer_step = 0, .hashes = {kFirst}, .holds = {{0, 4}}, .in_round = true});
  harness.receive(Welcome{.island = 1, .hashes = {kFirst}, .must_sync = true, .holds = {}});
  EXPECT_TRUE(harness.newest<Adopt>().drops_work);
  EXPECT_THAT(harness.said<Synced>().holds, IsEmpty());
  harness.hand_in();  // of what is dropped
  harness.receive(Lease{.ranges = {{8, 12}}, .inner_steps = 4});
  EXPECT_THAT(harness.member.holds(), ElementsAre(BatchRange{8, 12}));
  for (const MemberAction& action : harness.actions) {
    const auto* send = std::get_if<SendToCoordinator>(&action);
    EXPECT_FALSE(send != nullptr && std::holds_alternative<Ready>(send->message.body));
  }
}

TEST(Member, FetchesAndRebasesOrDrops) {
  for (const bool drops : {true, false}) {
    MemberHarness harness(
        {.outer_step = 0, .hashes = {kFirst}, .holds = {{0, 4}}, .in_round = true});
    harness.receive(Welcome{.island = 1, .hashes = {kFirst}, .holds = {{0, 4}}});
    harness.receive(Resync{.outer_step = 1,
                           .hashes = {kSecond},
                           .sources = {{2, "b:1"}},
                           .drops_work = drops,
                           .why = "test"},
                    1);
    EXPECT_EQ(harness.newest<FetchState>().hashes, std::vector{kSecond});
    harness.happen(StateFetched{1, {kSecond}});
    EXPECT_EQ(harness.newest<Adopt>().drops_work, drops);
    EXPECT_EQ(harness.said<Synced>().holds.empty(), drops);
  }
}

TEST(Member, PutsItsStateToTheCoordinatorIfItIsTheRuns) {
  MemberHarness harness;
  harness.welcome();
  harness.receive(PutState{{kSecond}});
  EXPECT_EQ(harness.count<UploadState>(), 0);
  harness.receive(PutState{{kFirst}});
  EXPECT_EQ(harness.newest<UploadState>().hashes, std::vector{kFirst});
}

TEST(Member, PutsTheStateOfTheOuterStepThatItIsStillMaking) {
  MemberHarness harness;
  harness.welcome();
  const Stamp reduce = harness.stamp(0, 1);
  harness.happen(CoordinatorSaid{{reduce, Reduce{}}});
  harness.receive(Commit{.hash = kSecond}, 0, 1);
  harness.receive(PutState{{kSecond}}, 1);
  EXPECT_EQ(harness.count<UploadState>(), 0);
  harness.happen(ReduceDone{reduce, kSecond});
  EXPECT_EQ(harness.newest<UploadState>().hashes, std::vector{kSecond});
  EXPECT_EQ(harness.count<UploadState>(), 1);
}

TEST(Member, PutsTheStateThatItIsItselfFetching) {
  MemberHarness harness;
  harness.welcome();
  harness.receive(Resync{.outer_step = 1, .hashes = {kSecond}, .sources = {{.island = 2}}}, 1);
  harness.receive(PutState{{kSecond}}, 1);
  EXPECT_EQ(harness.count<UploadState>(), 0);
  harness.happen(StateFetched{1, {kSecond}});
  EXPECT_EQ(harness.newest<UploadState>().hashes, std::vector{kSecond});
}

TEST(Member, PutsOnlyWhatIsNotThereYet) {
  MemberHarness harness({.outer_step = 0, .hashes = {kFirst, kSecond}});
  harness.receive(Welcome{.island = 1, .outer_step = 0, .hashes = {kFirst, kSecond}});
  harness.receive(PutState{{{}, kSecond}});
  EXPECT_THAT(harness.newest<UploadState>().hashes, ElementsAre(StateHash{}, kSecond));
}

TEST(Member, AsksAgainForWhatCouldNotBeFetched) {
  MemberHarness harness({.outer_step = -1});
  harness.receive(Welcome{.island = 1,
                          .outer_step = 1,
                          .hashes = {kSecond},
                          .must_sync = true,
                          .sources = {{2, "b:1"}}},
                  1);
  // Soon at first, then once a second.
  for (const Seconds after : {0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0}) {
    harness.happen(FetchFailed{"no route"});
    harness.actions.clear();
    harness.now += 0.9 * after;
    harness.happen(MemberTicked{});
    EXPECT_FALSE(harness.has_said<ReduceFailed>());
    harness.now += 0.2 * after;
    harness.happen(MemberTicked{});
    EXPECT_THAT(harness.said<ReduceFailed>().why, HasSubstr("could not be fetched"));
    harness.receive(Resync{.outer_step = 1, .hashes = {kSecond}, .sources = {{2, "b:1"}}}, 1);
  }
}

TEST(Member, ItsHeartbeatSaysWhoseBytesHaveCome) {
  MemberHarness harness;
  harness.welcome();
  harness.happen(MemberTicked{{3, 2}});
  EXPECT_THAT(harness.said<Heartbeat>().heard, ElementsAre(2, 3));
  harness.now += 0.1;
  harness.happen(MemberTicked{{4}});
  harness.now += 0.9;
  harness.happen(MemberTicked{});
  EXPECT_THAT(harness.said<Heartbeat>().heard, ElementsAre(4));
  EXPECT_EQ(harness.said<Heartbeat>().sent, 1);
  harness.now += 1;
  harness.happen(MemberTicked{});
  EXPECT_THAT(harness.said<Heartbeat>().heard, IsEmpty());
  harness.now += 0.1;
  harness.happen(MemberTicked{{5}});
  harness.happen(CoordinatorLost{"gone"});
  harness.now += 60;
  harness.happen(CoordinatorReached{});
  harness.receive(Welcome{.island = 1, .outer_step = 0, .hashes = {kFirst}});
  harness.happen(MemberTicked{});
  EXPECT_EQ(harness.said<Heartbeat>().sent, harness.now);
  EXPECT_THAT(harness.said<Heartbeat>().heard, IsEmpty()) << "that was long ago";
}

std::int64_t num_asked(const MemberHarness& harness) {
  return std::count_if(
      harness.actions.begin(), harness.actions.end(), [](const MemberAction& action) {
        const auto* send = std::get_if<SendToCoordinator>(&action);
        return send != nullptr && std::holds_alternative<ReduceFailed>(send->message.body);
      });
}

// A link that held all of it back lets it through at once.
TEST(Member, AsksOnceForManyOuterStepsThatItMissed) {
  MemberHarness harness;
  harness.welcome();
  for (std::int64_t step = 3; step < 6; ++step) {
    harness.receive(Reduce{}, step, 1);
    harness.receive(commit_of(kSecond, 2), step, 1);
  }
  EXPECT_EQ(num_asked(harness), 1);
  harness.receive(Resync{.outer_step = 6, .hashes = {kThird}, .sources = {{.island = 2}}}, 6);
  EXPECT_EQ(harness.count<FetchState>(), 1);
  harness.happen(FetchFailed{"gone"});
  harness.now += 2;
  harness.happen(MemberTicked{});
  EXPECT_EQ(num_asked(harness), 2) << "that answer came, and was no use";
  // One that may not be heard as it is meant is not the last.
  MemberHarness other;
  other.prepare();
  other.receive(AbandonReduce{}, 0, 1);
  other.receive(commit_of(kSecond, 2), 0, 2);
  other.receive(Reduce{}, 1, 1);
  EXPECT_EQ(num_asked(other), 2);
}

TEST(Member, TheEndWaitsForTheLastResult) {
  MemberHarness harness;
  harness.welcome();
  const Stamp reduce = harness.stamp(0, 1);
  harness.happen(CoordinatorSaid{{reduce, Reduce{}}});
  harness.receive(commit_of(kSecond, 2), 0, 1);
  harness.receive(Finish{.why = "done"}, 1);
  EXPECT_EQ(harness.count<Halt>(), 0);
  harness.happen(ReduceDone{reduce, kSecond});
  EXPECT_EQ(harness.member.outer_step(), 1);
  EXPECT_TRUE(harness.newest<Halt>().is_done);
}

TEST(Member, ARefusalIsFinalOrTriedAgain) {
  MemberHarness harness;
  harness.receive(Refused{.why = "the name is taken", .is_final = false});
  EXPECT_EQ(harness.count<Connect>(), 1);
  harness.happen(CoordinatorReached{});
  harness.receive(Refused{.why = "another model", .is_final = true});
  EXPECT_FALSE(harness.newest<Halt>().is_done);
  EXPECT_THAT(harness.newest<Halt>().why, HasSubstr("another model"));
}

// An older ledger was put back: its coordinator's stamps are those of messages long ago.
TEST(Member, HearsWhyItIsRefusedByACoordinatorWithAnOlderLedger) {
  for (const std::uint64_t fence : {3, 2}) {
    MemberHarness harness;
    harness.happen(CoordinatorSaid{{{.fence = 3, .view = 7, .outer_step = 9, .sequence = 50},
                                    Welcome{.island = 1, .outer_step = 9, .hashes = {kFirst}}}});
    harness.happen(CoordinatorLost{"it was stopped"});
    harness.happen(CoordinatorReached{});
    harness.happen(CoordinatorSaid{{{.fence = fence, .sequence = 1},
                                    Refused{.why = "its checkpoint is newer than the ledger"}}});
    EXPECT_FALSE(harness.newest<Halt>().is_done);
    EXPECT_TRUE(harness.newest<Halt>().is_mistake);
    EXPECT_THAT(harness.newest<Halt>().why, HasSubstr("newer than the ledger"));
  }
}

TEST(Member, EndsWhereTheCoordinatorGoesOnFromAnOlderLedger) {
  for (const std::uint64_t fence : {3, 2}) {
    MemberHarness harness;
    const Welcome welcome = {.island = 1, .outer_step = 9, .hashes = {kFirst}};
    harness.happen(
        CoordinatorSaid{{{.fence = 3, .view = 7, .outer_step = 9, .sequence = 50}, welcome}});
    harness.happen(CoordinatorLost{"it was stopped"});
    harness.happen(CoordinatorReached{});
    harness.happen(
        CoordinatorSaid{{{.fence = fence, .view = 1, .outer_step = 5, .sequence = 60}, welcome}});
    EXPECT_FALSE(harness.newest<Halt>().is_done);
    EXPECT_TRUE(harness.newest<Halt>().is_mistake);
    EXPECT_THAT(harness.newest<Halt>().why,
                HasSubstr(fmt::format("at start {} and outer step 5", fence)));
    EXPECT_THAT(harness.newest<Halt>().why, HasSubstr("heard of start 3 and outer step 9"));
  }
}

TEST(Member, GivesUpWithoutACoordinatorInTheEnd) {
  MemberHarness harness;
  for (; harness.count<Halt>() == 0 && harness.now < 1000; harness.now += 1) {
    harness.happen(CoordinatorLost{"refused"});
  }
  EXPECT_NEAR(harness.now, 600, 3);
  EXPECT_THAT(harness.newest<Halt>().why, HasSubstr("no coordinator for 601 s"));
}

TEST(Member, LeavesEvenIfNobodyAnswers) {
  MemberHarness harness;
  harness.welcome();
  harness.happen(LeaveWanted{"SIGTERM"});
  EXPECT_EQ(harness.said<Leave>().why, "SIGTERM");
  harness.now = 6;
  harness.happen(MemberTicked{});
  EXPECT_TRUE(harness.newest<Halt>().is_done);
}

// Fixed runs hear nothing; a change comes before the state that it is for.
TEST(Member, TellsOfASchedulesChangeBeforeTheStateThatItIsFor) {
  MemberHarness harness;
  harness.welcome();
  EXPECT_EQ(harness.count<UseSchedule>(), 0);
  Stamp reduce = harness.stamp(0, 1);
  harness.happen(CoordinatorSaid{{reduce, Reduce{}}});
  harness.happen(ReduceDone{reduce, kSecond});
  harness.receive(Commit{.hash = kSecond, .next = {.inner_steps = 7, .codec = "int8"}}, 0, 1);
  ASSERT_GE(harness.actions.size(), 2U);
  const auto* use = std::get_if<UseSchedule>(&harness.actions[harness.actions.size() - 2]);
  ASSERT_NE(use, nullptr);
  EXPECT_EQ(use->outer_step, 1);
  EXPECT_EQ(use->schedule.codec, "int8");
  EXPECT_TRUE(std::holds_alternative<Swap>(harness.actions.back()));
  // The same again says nothing, also where another time is predicted.
  harness.actions.clear();
  harness.receive(Welcome{.island = 1,
                          .outer_step = 1,
                          .hashes = {kSecond},
                          .schedule = {.inner_steps = 7, .codec = "int8", .predicted_seconds = 3}},
                  1);
  EXPECT_EQ(harness.count<UseSchedule>(), 0);
}

}  // namespace
}  // namespace atl::island
