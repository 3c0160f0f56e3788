#include "atoll/island/coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::atl::island::testing::at_reduce;
using ::atl::island::testing::kFirst;
using ::atl::island::testing::kSecond;
using ::atl::island::testing::Stage;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Coordinator, LeasesOnceEnoughIslandsAreThere) {
  Stage stage;
  stage.come(1);
  EXPECT_EQ(stage.newest<Lease>(1), nullptr);
  stage.come(2);
  EXPECT_THAT(stage.body<Lease>(1).ranges, ElementsAre(BatchRange{0, 4}));
  EXPECT_THAT(stage.body<Lease>(2).ranges, ElementsAre(BatchRange{4, 8}));
}

TEST(Coordinator, SaysHowManyTheBeginningWaitsForAndSaysItOnce) {
  Stage stage(3);
  const auto wanted = [&] {
    std::vector<std::string> said = std::exchange(stage.notices, {});
    std::erase_if(said, [](const std::string& one) { return one.find("wanted") == one.npos; });
    return said;
  };
  stage.wait(1, {});
  EXPECT_THAT(wanted(), IsEmpty()) << "nobody is there to whom it would matter";
  stage.come(1);
  stage.wait(1, {1});
  EXPECT_THAT(wanted(), ElementsAre("training begins with 3 islands; 2 more wanted"));
  stage.come(2);
  stage.wait(1, {1, 2});
  EXPECT_THAT(wanted(), ElementsAre("training begins with 3 islands; 1 more wanted"));
  stage.come(3);
  stage.close(3);
  stage.wait(1, {1, 2});
  EXPECT_THAT(wanted(), IsEmpty()) << "it has begun";
}

TEST(Coordinator, CommitsWhatAllParticipantsAgreeOn) {
  Stage stage = at_reduce();
  const Stamp stamp = stage.newest<Reduce>(1)->stamp;
  EXPECT_THAT(stage.body<Lease>(1).ranges, ElementsAre(BatchRange{8, 12})) << "with Reduce";
  stage.say(1, Prepared{kSecond}, {.outer_step = 0, .attempt = stamp.attempt});
  EXPECT_EQ(stage.newest<Commit>(1), nullptr) << "the other one is not prepared";
  stage.say(2, Prepared{kSecond}, {.outer_step = 0, .attempt = stamp.attempt});
  EXPECT_EQ(stage.body<Commit>(1).hash, kSecond);
  EXPECT_EQ(stage.coordinator->state().outer_step(), 1);
  EXPECT_EQ(stage.coordinator->state().book().num_consumed(), 8);
}

TEST(Coordinator, WhatIsPreparedForAnotherAttemptDoesNotCount) {
  Stage stage = at_reduce();
  stage.say(1, ReduceFailed{{2}, "no route"}, {.outer_step = 0, .attempt = 1});
  ASSERT_EQ(stage.newest<Reduce>(1)->stamp.attempt, 2U);
  stage.say(1, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  stage.say(2, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  EXPECT_EQ(stage.newest<Commit>(1), nullptr);
}

TEST(Coordinator, MessagesOfAnotherFenceOrSeenBeforeAreDropped) {
  Stage stage = at_reduce();
  stage.say(1, Prepared{kSecond}, {.fence = 9, .outer_step = 0, .attempt = 1});
  stage.say(2, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  EXPECT_EQ(stage.newest<Commit>(1), nullptr) << "of another coordinator";
  stage.say(1, Prepared{kSecond}, {.outer_step = 0, .attempt = 1, .sequence = 1});
  EXPECT_EQ(stage.newest<Commit>(1), nullptr) << "an old sequence number";
  stage.say(1, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  EXPECT_NE(stage.newest<Commit>(1), nullptr);
}

TEST(Coordinator, AnotherBaseIsFetchedAnew) {
  Stage stage;
  stage.come(1);
  stage.come(2);
  Ready ready = stage.ready({{0, 4}});
  ready.base_hash = kSecond;
  stage.say(1, ready);
  EXPECT_THAT(stage.body<Resync>(1).why, HasSubstr("another state"));
  stage.say(2, stage.ready({{4, 8}}));
  ASSERT_NE(stage.newest<Reduce>(2), nullptr);
  EXPECT_EQ(stage.body<Reduce>(2).participants.size(), 1U);
}

TEST(Coordinator, BatchesOfOthersAreNotTaken) {
  Stage stage;
  stage.come(1);
  stage.come(2);
  stage.say(1, stage.ready({{4, 8}}));
  EXPECT_THAT(stage.body<Resync>(1).why, HasSubstr("not its own"));
}

TEST(Coordinator, AFetchedStateWithAnotherHashIsRefusedThreeTimes) {
  Stage stage(1);
  stage.come(1);
  stage.open(2);
  Join join = stage.join("i2");
  join.outer_step = -1;
  join.hashes.clear();
  stage.say(2, join);
  EXPECT_TRUE(stage.body<Welcome>(2).must_sync);
  EXPECT_THAT(stage.body<Welcome>(2).sources, ElementsAre(Source{1, "i1:1"}));
  std::uint64_t request = stage.newest<Welcome>(2)->stamp.sequence;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(stage.newest<Finish>(2), nullptr);
    stage.say(2, Synced{.outer_step = 0, .hashes = {kSecond}, .answers = request});
    if (i == 2) break;
    ASSERT_NE(stage.newest<Resync>(2), nullptr);
    request = stage.newest<Resync>(2)->stamp.sequence;
  }
  EXPECT_FALSE(stage.body<Finish>(2).is_done);
  EXPECT_THAT(stage.closed, ElementsAre(2));
}

TEST(Coordinator, RefusesIslandsOfAnotherRunNamingTheField) {
  Stage stage;
  stage.open(1);
  Join join = stage.join("i1");
  join.identity.model = "m2";
  join.plan.inner_steps = 5;
  stage.say(1, join);
  EXPECT_THAT(stage.body<Refused>(1).why, HasSubstr("the model is m2 there and  in the run"));
  EXPECT_THAT(stage.body<Refused>(1).why, HasSubstr("inner steps is 5 there and 4 in the run"));
  EXPECT_TRUE(stage.body<Refused>(1).is_final);
  EXPECT_THAT(stage.closed, ElementsAre(1));

  stage.open(2);
  join.identity.version = "0";
  stage.say(2, join);
  EXPECT_THAT(stage.body<Refused>(2).why,
              AllOf(HasSubstr("it speaks version 0 of the protocol"), Not(HasSubstr("the model"))));
}

TEST(Coordinator, ANameIsTakenWhileItsIslandIsHeardFrom) {
  Stage stage;
  stage.come(1);
  stage.wait(3, {1});
  stage.open(7);
  stage.say(7, stage.join("i1"));
  EXPECT_FALSE(stage.body<Refused>(7).is_final);
  stage.wait(3, {});  // the first one falls silent
  stage.open(8);
  stage.say(8, stage.join("i1"));
  EXPECT_EQ(stage.body<Welcome>(8).island, 1U);
  EXPECT_THAT(stage.closed, ElementsAre(7, 1));
}

// Its own word waits behind what it sends to the others, who say that it comes.
TEST(Coordinator, WhoseBytesComeToOthersIsNoSuspect) {
  Stage stage = at_reduce();
  for (int i = 0; i < 40; ++i) {
    stage.say(1, Heartbeat{.sent = stage.now, .heard = {1, 2, 3, 77}});
    stage.take({stage.now, ClockTicked{}});
    stage.now += 0.25;
  }
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kActive), 2);
  EXPECT_EQ(stage.newest<AbandonReduce>(1), nullptr);
  for (int i = 0; i < 40; ++i) {  // through the coordinator: both
    stage.take({stage.now, BytesCame{{1, 2}}});
    stage.take({stage.now, ClockTicked{}});
    stage.now += 0.25;
  }
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kActive), 2);
  stage.wait(3, {1});
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kSuspect), 1) << "nobody hears it";
  // A suspect is one until it speaks for itself.
  stage.say(1, Heartbeat{.sent = stage.now, .heard = {2}});
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kSuspect), 1);
}

TEST(Coordinator, WhatComesLateIsEvidenceOfWhenItWasSent) {
  Stage stage = at_reduce();
  stage.wait(10, {1, 2});
  for (int i = 0; i < 20; ++i, stage.now += 0.25) {
    stage.say(1, Heartbeat{.sent = stage.now - 4, .heard = {2}});
    stage.take({stage.now, ClockTicked{}});
  }
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kSuspect), 1);
}

// One whose silence was none is given more, and takes that back when it contributes.
TEST(Coordinator, WhoWasSuspectedAndAliveIsGivenMoreTimeUntilItTakesPart) {
  Stage stage = at_reduce();
  const auto patience = [&] { return stage.coordinator->members().all()[1].pulse->patience(); };
  stage.wait(10, {1, 2});
  const Seconds before = patience();
  stage.wait(3, {1});
  ASSERT_EQ(stage.coordinator->members().count(MemberState::kSuspect), 1);
  stage.wait(5, {1, 2});
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kSuspect), 0);
  EXPECT_NEAR(patience(), 1.5 * before, 1e-9);
  const Stamp stamp = {.outer_step = 0, .attempt = stage.newest<Reduce>(1)->stamp.attempt};
  for (const ConnectionId island : {1, 2}) stage.say(island, Prepared{kSecond}, stamp);
  ASSERT_EQ(stage.body<Commit>(1).participants.size(), 1U);
  for (const ConnectionId island : {1, 2}) {
    Ready ready = stage.ready(stage.body<Lease>(island).ranges);
    ready.base_hash = kSecond;
    stage.say(island, ready, {.outer_step = 1});
  }
  const Stamp second = {.outer_step = 1, .attempt = stage.newest<Reduce>(1)->stamp.attempt};
  for (const ConnectionId island : {1, 2}) stage.say(island, Prepared{kFirst}, second);
  ASSERT_EQ(stage.body<Commit>(1).participants.size(), 2U);
  EXPECT_NEAR(patience(), before, 1e-9);
}

TEST(Coordinator, WhatIsKnownOfALinkOutlivesItsConnection) {
  Stage stage = at_reduce();
  const auto beat = [&](ConnectionId island, Seconds late) {
    stage.say(island, Heartbeat{.sent = std::max(0.0, stage.now - late)});
  };
  for (int i = 0; i < 40; ++i, stage.now += 0.5) {
    for (const ConnectionId island : {1, 2}) beat(island, island == 2 && i >= 20 ? 5 : 0);
  }
  stage.close(2);
  stage.open(3);
  stage.say(3, stage.join("i2"));
  stage.say(3, Heartbeat{.sent = stage.now});
  stage.wait(8, {1});
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kSuspect), 0) << "it had 5 s of queue";
  stage.wait(8, {1});
  EXPECT_EQ(stage.coordinator->members().count(MemberState::kSuspect), 1);
}

TEST(Coordinator, RoundsGrowForOneThatCannotFetchTheStateInOne) {
  Stage stage = at_reduce();
  std::int64_t step = 0;
  ConnectionId fetcher = 0;
  // Inner steps of the rounds that so many outer steps lead to.
  const auto rounds = [&](int count) {
    std::vector<std::int64_t> leased;
    for (int i = 0; i < count; ++i, ++step) {
      const Stamp stamp = {.outer_step = step, .attempt = stage.newest<Reduce>(1)->stamp.attempt};
      const StateHash result = {9, static_cast<std::uint64_t>(step)};
      if (fetcher != 0) stage.say(fetcher, Heartbeat{.sent = stage.now, .heard = {1}});
      for (const ConnectionId island : {1, 2}) stage.say(island, Prepared{result}, stamp);
      leased.push_back(stage.body<Lease>(1).inner_steps);
      for (const ConnectionId island : {1, 2}) {
        Ready ready = stage.ready(stage.body<Lease>(island).ranges);
        ready.base_hash = result;
        stage.say(island, ready, {.outer_step = step + 1});
      }
    }
    return leased;
  };
  EXPECT_THAT(rounds(5), Each(4));
  stage.open(3);
  Join late = stage.join("i3");
  late.outer_step = -1;
  late.hashes.clear();
  stage.say(3, late);
  ASSERT_EQ(stage.coordinator->members().count(MemberState::kSyncing), 1);
  EXPECT_THAT(rounds(5), Each(4)) << "nothing has come to it: it reaches nobody";
  fetcher = 3;
  EXPECT_THAT(rounds(4), ElementsAre(4, 4, 8, 16));
  stage.close(3);
  stage.open(4);
  stage.say(4, late);
  fetcher = 0;
  EXPECT_THAT(rounds(2), ElementsAre(32, 32)) << "what its link is has not changed";
  fetcher = 4;
  EXPECT_THAT(rounds(8), ElementsAre(32, 64, 64, 64, 64, 4, 4, 4)) << "in the end it is given up";
  EXPECT_EQ(stage.body<Lease>(1).round_begin, stage.body<Lease>(2).round_begin);
  EXPECT_EQ(stage.body<Lease>(1).round_begin, stage.body<Lease>(1).ranges.front().begin);
}

TEST(Coordinator, WhoComesIntoALongerRoundEndsWithTheOthers) {
  Stage stage = at_reduce();
  const auto beat = [&](ConnectionId island, std::vector<IslandId> heard) {
    stage.say(island, Heartbeat{.batches_per_second = 2, .sent = stage.now, .heard = heard});
  };
  stage.open(3);
  Join late = stage.join("i3");
  late.outer_step = -1;
  late.hashes.clear();
  stage.say(3, late);
  StateHash result;
  for (std::int64_t step = 0; step < 4; ++step) {
    for (const ConnectionId island : {1, 2}) beat(island, {});
    beat(3, {1, 2});
    result = {9, static_cast<std::uint64_t>(step)};
    const Stamp stamp = {.outer_step = step, .attempt = stage.newest<Reduce>(1)->stamp.attempt};
    for (const ConnectionId island : {1, 2}) stage.say(island, Prepared{result}, stamp);
    if (step == 3) break;
    for (const ConnectionId island : {1, 2}) {
      Ready ready = stage.ready(stage.body<Lease>(island).ranges);
      ready.base_hash = result;
      stage.say(island, ready, {.outer_step = step + 1});
    }
  }
  ASSERT_EQ(stage.body<Lease>(1).inner_steps, 16);
  stage.now += 3;  // six steps of the sixteen
  for (const ConnectionId island : {1, 2, 3}) beat(island, {});
  stage.say(3, Synced{.outer_step = 4,
                      .hashes = {result},
                      .answers = stage.newest<Welcome>(3)->stamp.sequence});
  ASSERT_NE(stage.newest<Lease>(3), nullptr);
  EXPECT_EQ(stage.body<Lease>(3).inner_steps, 10);
  EXPECT_EQ(stage.body<Lease>(3).round_begin, stage.body<Lease>(1).round_begin) << "one clock";
  EXPECT_EQ(stage.coordinator->members().all()[2].overtaken, 4);
  for (const ConnectionId island : {3, 1, 2}) {  // it is not waited for
    Ready ready = stage.ready(stage.body<Lease>(island).ranges);
    ready.base_hash = result;
    stage.say(island, ready, {.outer_step = 4});
  }
  const Stamp last = {.outer_step = 4, .attempt = stage.newest<Reduce>(1)->stamp.attempt};
  for (const ConnectionId island : {1, 2, 3}) stage.say(island, Prepared{kFirst}, last);
  ASSERT_EQ(stage.body<Commit>(3).participants.size(), 3U);
  EXPECT_EQ(stage.coordinator->members().all()[2].overtaken, 0) << "the next time is another one";
}

TEST(Coordinator, AConnectionThatNeverJoinsIsClosed) {
  Stage stage;
  stage.open(5);
  stage.wait(stage.options.join_within + 1, {});
  EXPECT_THAT(stage.closed, ElementsAre(5));
}

TEST(Coordinator, WhatAJoinDoesNotHoldReturns) {
  Stage stage = at_reduce();
  stage.close(1);
  stage.come(1, {{0, 4}});  // its second lease was lost with the connection
  EXPECT_THAT(stage.coordinator->state().book().held_by(1), ElementsAre(BatchRange{0, 4}));
  EXPECT_FALSE(stage.body<Welcome>(1).must_sync);
}

TEST(Coordinator, TheEndOfTheRunIsSharedOut) {
  Stage stage;
  stage.options.plan.total_batches = 10;
  stage.log.clear();
  stage.restart();
  stage.come(1);
  stage.come(2);
  stage.say(1, stage.ready({{0, 4}}));
  stage.say(2, stage.ready({{4, 8}}));
  EXPECT_EQ(stage.body<Lease>(1).inner_steps, 1);
  EXPECT_EQ(stage.body<Lease>(2).inner_steps, 1);
}

TEST(Coordinator, SlowerIslandsTakeFewerStepsUnlessNearlyAsFast) {
  Stage stage(3);
  for (const ConnectionId island : {1, 2, 3}) stage.come(island);
  stage.say(1, Heartbeat{.inner_steps = 0, .batches_per_second = 8});
  stage.say(2, Heartbeat{.inner_steps = 0, .batches_per_second = 7.6});
  stage.say(3, Heartbeat{.inner_steps = 0, .batches_per_second = 2});
  stage.say(1, stage.ready({{0, 4}}));
  stage.say(2, stage.ready({{4, 8}}));
  stage.say(3, stage.ready({{8, 12}}));
  EXPECT_EQ(stage.body<Lease>(1).inner_steps, 4);
  EXPECT_EQ(stage.body<Lease>(2).inner_steps, 4);
  EXPECT_EQ(stage.body<Lease>(3).inner_steps, 1);
  for (const ConnectionId island : {1, 2, 3}) {
    EXPECT_EQ(stage.body<Lease>(island).round_begin, 12);
    EXPECT_EQ(stage.body<Lease>(island).round_batches, 9) << "of all of them";
  }
}

TEST(Coordinator, WhatComesBackUntrainedIsNotCountedAsDone) {
  Stage stage = at_reduce();  // both have their second leases
  ASSERT_EQ(stage.body<Lease>(1).round_begin, 8);
  stage.say(2, Leave{.why = "it was stopped"});
  stage.say(1, Prepared{kFirst}, {.attempt = stage.newest<Reduce>(1)->stamp.attempt});
  Ready ready = stage.ready(stage.body<Lease>(1).ranges);
  stage.say(1, ready, {.outer_step = 1});
  stage.wait(3, {1});
  const Lease& third = stage.body<Lease>(1);
  EXPECT_EQ(third.round_batches, third.inner_steps) << "it is alone";
  EXPECT_EQ(third.round_begin, stage.coordinator->state().book().num_given() - third.inner_steps);
  EXPECT_LT(third.round_begin, stage.coordinator->state().book().high_water());
}

TEST(Coordinator, ALogThatContradictsItselfIsAnError) {
  Stage stage = at_reduce();
  stage.log.push_back({.unix_seconds = 0, .body = LogCommit{.outer_step = 3, .attempt = 1}});
  try {
    Coordinator(stage.options, 9, stage.log);
    FAIL() << "it was believed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    EXPECT_THAT(error.what(), HasSubstr("a commit out of order, of outer step 3"));
  }
}

TEST(Coordinator, ContributorsWeighAsTheirTokens) {
  Stage stage;
  stage.come(1);
  stage.come(2);
  Ready much = stage.ready({{0, 4}});
  much.tokens = 300;
  stage.say(1, much);
  stage.say(2, stage.ready({{4, 8}}));
  const auto& participants = stage.body<Reduce>(1).participants;
  ASSERT_EQ(participants.size(), 2U);
  EXPECT_DOUBLE_EQ(participants[0].weight, 0.75);
  EXPECT_DOUBLE_EQ(participants[1].weight, 0.25);
}

// Islands that only call out: 1 and 2, which have the state, and 3, which has none.
void come_without_addresses(Stage& stage) {
  for (const ConnectionId island : {1, 2, 3}) {
    stage.open(island);
    Join join = stage.join(fmt::format("i{}", island));
    join.address = "";
    if (island == 3) {
      join.outer_step = -1;
      join.hashes = {};
    }
    stage.say(island, join);
  }
}

TEST(Coordinator, WhenTheOneThatPutsTheStateIsGoneAnotherOneIsAsked) {
  Stage stage;
  come_without_addresses(stage);
  const IslandId putter = stage.body<Welcome>(3).sources.at(0).island;
  const IslandId other = 3 - putter;
  EXPECT_EQ(stage.newest<PutState>(other), nullptr);
  stage.close(putter);
  EXPECT_THAT(stage.body<PutState>(other).hashes, ElementsAre(kFirst));
  EXPECT_EQ(stage.body<Resync>(3).sources.at(0).island, other);
  EXPECT_FALSE(stage.body<Resync>(3).drops_work);
  // With nobody left, what was put may still be enough: nothing is begun anew.
  stage.heard.clear();
  stage.close(other);
  EXPECT_EQ(stage.newest<Resync>(3), nullptr);
}

TEST(Coordinator, OneThatHasTheStateAlreadyIsPutNothing) {
  Stage stage;
  for (const ConnectionId island : {1, 2, 3}) {
    stage.open(island);
    // Batches that nobody leased to it: they are dropped, and its state is the run's.
    Join join = stage.join(fmt::format("i{}", island));
    if (island == 3) join.holds = {{900, 904}};
    join.address = "";
    stage.say(island, join);
  }
  EXPECT_TRUE(stage.body<Welcome>(3).must_sync);
  for (const ConnectionId island : {1, 2}) EXPECT_EQ(stage.newest<PutState>(island), nullptr);
}

TEST(Coordinator, WhereAllOnlyCallOutOneIsAskedToPutTheStateWhereItIsFetched) {
  Stage stage;
  come_without_addresses(stage);
  const auto& sources = stage.body<Welcome>(3).sources;
  ASSERT_EQ(sources.size(), 1);
  EXPECT_EQ(sources[0].address, "");
  EXPECT_THAT(stage.body<PutState>(sources[0].island).hashes, ElementsAre(kFirst));
  EXPECT_EQ(stage.newest<PutState>(3 - sources[0].island), nullptr) << "one is enough";
  // One that others reach is asked for nothing.
  stage.come(4);
  stage.heard.clear();
  stage.open(5);
  Join late = stage.join("i5");
  late.outer_step = -1;
  late.hashes = {};
  stage.say(5, late);
  EXPECT_THAT(stage.body<Welcome>(5).sources, ElementsAre(Source{4, "i4:1"}));
  for (const ConnectionId island : {1, 2, 4}) EXPECT_EQ(stage.newest<PutState>(island), nullptr);
}

TEST(Coordinator, OneIslandWithoutAnAddressMakesItAStar) {
  Stage stage(1);
  stage.open(1);
  Join join = stage.join("i1");
  join.address.clear();
  stage.say(1, join);
  stage.say(1, stage.ready({{0, 4}}));
  EXPECT_TRUE(stage.body<Reduce>(1).is_star);
}

}  // namespace
}  // namespace atl::island
