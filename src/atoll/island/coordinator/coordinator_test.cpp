#include "atoll/island/coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "atoll/base/error.h"
#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::atl::island::testing::at_reduce;
using ::atl::island::testing::CoordinatorHarness;
using ::atl::island::testing::kFirst;
using ::atl::island::testing::kSecond;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Coordinator, LeasesOnceEnoughIslandsAreThere) {
  CoordinatorHarness harness;
  harness.come(1);
  EXPECT_EQ(harness.newest<Lease>(1), nullptr);
  harness.come(2);
  EXPECT_THAT(harness.body<Lease>(1).ranges, ElementsAre(BatchRange{0, 4}));
  EXPECT_THAT(harness.body<Lease>(2).ranges, ElementsAre(BatchRange{4, 8}));
}

TEST(Coordinator, SaysHowManyTheBeginningWaitsForAndSaysItOnce) {
  CoordinatorHarness harness(3);
  const auto wanted = [&] {
    std::vector<std::string> said = std::exchange(harness.notices, {});
    std::erase_if(said, [](const std::string& one) { return one.find("wanted") == one.npos; });
    return said;
  };
  harness.wait(1, {});
  EXPECT_THAT(wanted(), IsEmpty()) << "nobody is there to whom it would matter";
  harness.come(1);
  harness.wait(1, {1});
  EXPECT_THAT(wanted(), ElementsAre("training begins with 3 islands; 2 more wanted"));
  harness.come(2);
  harness.wait(1, {1, 2});
  EXPECT_THAT(wanted(), ElementsAre("training begins with 3 islands; 1 more wanted"));
  harness.come(3);
  harness.close(3);
  harness.wait(1, {1, 2});
  EXPECT_THAT(wanted(), IsEmpty()) << "it has begun";
}

TEST(Coordinator, CommitsWhatAllParticipantsAgreeOn) {
  CoordinatorHarness harness = at_reduce();
  const Stamp stamp = harness.newest<Reduce>(1)->stamp;
  EXPECT_THAT(harness.body<Lease>(1).ranges, ElementsAre(BatchRange{8, 12})) << "with Reduce";
  harness.say(1, Prepared{kSecond}, {.outer_step = 0, .attempt = stamp.attempt});
  EXPECT_EQ(harness.newest<Commit>(1), nullptr) << "the other one is not prepared";
  harness.say(2, Prepared{kSecond}, {.outer_step = 0, .attempt = stamp.attempt});
  EXPECT_EQ(harness.body<Commit>(1).hash, kSecond);
  EXPECT_EQ(harness.coordinator->state().outer_step(), 1);
  EXPECT_EQ(harness.coordinator->state().leases().num_consumed(), 8);
}

TEST(Coordinator, WhatIsPreparedForAnotherAttemptDoesNotCount) {
  CoordinatorHarness harness = at_reduce();
  harness.say(1, ReduceFailed{{2}, "no route"}, {.outer_step = 0, .attempt = 1});
  ASSERT_EQ(harness.newest<Reduce>(1)->stamp.attempt, 2U);
  harness.say(1, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  harness.say(2, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  EXPECT_EQ(harness.newest<Commit>(1), nullptr);
}

TEST(Coordinator, MessagesOfAnotherFenceOrSeenBeforeAreDropped) {
  CoordinatorHarness harness = at_reduce();
  harness.say(1, Prepared{kSecond}, {.fence = 9, .outer_step = 0, .attempt = 1});
  harness.say(2, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  EXPECT_EQ(harness.newest<Commit>(1), nullptr) << "of another coordinator";
  harness.say(1, Prepared{kSecond}, {.outer_step = 0, .attempt = 1, .sequence = 1});
  EXPECT_EQ(harness.newest<Commit>(1), nullptr) << "an old sequence number";
  harness.say(1, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  EXPECT_NE(harness.newest<Commit>(1), nullptr);
}

TEST(Coordinator, AnotherBaseIsFetchedAnew) {
  CoordinatorHarness harness;
  harness.come(1);
  harness.come(2);
  Ready ready = harness.ready({{0, 4}});
  ready.base_hash = kSecond;
  harness.say(1, ready);
  EXPECT_THAT(harness.body<Resync>(1).why, HasSubstr("another state"));
  harness.say(2, harness.ready({{4, 8}}));
  ASSERT_NE(harness.newest<Reduce>(2), nullptr);
  EXPECT_EQ(harness.body<Reduce>(2).participants.size(), 1U);
}

TEST(Coordinator, BatchesOfOthersAreNotTaken) {
  CoordinatorHarness harness;
  harness.come(1);
  harness.come(2);
  harness.say(1, harness.ready({{4, 8}}));
  EXPECT_THAT(harness.body<Resync>(1).why, HasSubstr("not its own"));
}

TEST(Coordinator, AFetchedStateWithAnotherHashIsRefusedThreeTimes) {
  CoordinatorHarness harness(1);
  harness.come(1);
  harness.open(2);
  Join join = harness.join("i2");
  join.outer_step = -1;
  join.hashes.clear();
  harness.say(2, join);
  EXPECT_TRUE(harness.body<Welcome>(2).must_sync);
  EXPECT_THAT(harness.body<Welcome>(2).sources, ElementsAre(Source{1, "i1:1"}));
  std::uint64_t request = harness.newest<Welcome>(2)->stamp.sequence;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(harness.newest<Finish>(2), nullptr);
    harness.say(2, Synced{.outer_step = 0, .hashes = {kSecond}, .answers = request});
    if (i == 2) break;
    ASSERT_NE(harness.newest<Resync>(2), nullptr);
    request = harness.newest<Resync>(2)->stamp.sequence;
  }
  EXPECT_FALSE(harness.body<Finish>(2).is_done);
  EXPECT_THAT(harness.closed, ElementsAre(2));
}

TEST(Coordinator, RefusesIslandsOfAnotherRunNamingTheField) {
  CoordinatorHarness harness;
  harness.open(1);
  Join join = harness.join("i1");
  join.identity.model = "m2";
  join.plan.inner_steps = 5;
  harness.say(1, join);
  EXPECT_THAT(harness.body<Refused>(1).why, HasSubstr("the model is m2 there and  in the run"));
  EXPECT_THAT(harness.body<Refused>(1).why, HasSubstr("inner steps is 5 there and 4 in the run"));
  EXPECT_TRUE(harness.body<Refused>(1).is_final);
  EXPECT_THAT(harness.closed, ElementsAre(1));

  harness.open(2);
  join.identity.version = "0";
  harness.say(2, join);
  EXPECT_THAT(harness.body<Refused>(2).why,
              AllOf(HasSubstr("it speaks version 0 of the protocol"), Not(HasSubstr("the model"))));
}

TEST(Coordinator, ANameIsTakenWhileItsIslandIsHeardFrom) {
  CoordinatorHarness harness;
  harness.come(1);
  harness.wait(3, {1});
  harness.open(7);
  harness.say(7, harness.join("i1"));
  EXPECT_FALSE(harness.body<Refused>(7).is_final);
  harness.wait(3, {});  // the first one falls silent
  harness.open(8);
  harness.say(8, harness.join("i1"));
  EXPECT_EQ(harness.body<Welcome>(8).island, 1U);
  EXPECT_THAT(harness.closed, ElementsAre(7, 1));
}

// Its own word waits behind what it sends to the others, who say that it comes.
TEST(Coordinator, WhoseBytesComeToOthersIsNoSuspect) {
  CoordinatorHarness harness = at_reduce();
  for (int i = 0; i < 40; ++i) {
    harness.say(1, Heartbeat{.sent = harness.now, .heard = {1, 2, 3, 77}});
    harness.take({harness.now, ClockTicked{}});
    harness.now += 0.25;
  }
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kActive), 2);
  EXPECT_EQ(harness.newest<AbandonReduce>(1), nullptr);
  for (int i = 0; i < 40; ++i) {  // through the coordinator: both
    harness.take({harness.now, BytesCame{{1, 2}}});
    harness.take({harness.now, ClockTicked{}});
    harness.now += 0.25;
  }
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kActive), 2);
  harness.wait(3, {1});
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kSuspect), 1) << "nobody hears it";
  // A suspect is one until it speaks for itself.
  harness.say(1, Heartbeat{.sent = harness.now, .heard = {2}});
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kSuspect), 1);
}

TEST(Coordinator, WhatComesLateIsEvidenceOfWhenItWasSent) {
  CoordinatorHarness harness = at_reduce();
  harness.wait(10, {1, 2});
  for (int i = 0; i < 20; ++i, harness.now += 0.25) {
    harness.say(1, Heartbeat{.sent = harness.now - 4, .heard = {2}});
    harness.take({harness.now, ClockTicked{}});
  }
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kSuspect), 1);
}

// One whose silence was none is given more, and takes that back when it contributes.
TEST(Coordinator, WhoWasSuspectedAndAliveIsGivenMoreTimeUntilItTakesPart) {
  CoordinatorHarness harness = at_reduce();
  const auto timeout = [&] { return harness.coordinator->members().all()[1].detector->timeout(); };
  harness.wait(10, {1, 2});
  const Seconds before = timeout();
  harness.wait(3, {1});
  ASSERT_EQ(harness.coordinator->members().count(IslandState::kSuspect), 1);
  harness.wait(5, {1, 2});
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kSuspect), 0);
  EXPECT_NEAR(timeout(), 1.5 * before, 1e-9);
  const Stamp stamp = {.outer_step = 0, .attempt = harness.newest<Reduce>(1)->stamp.attempt};
  for (const ConnectionId island : {1, 2}) harness.say(island, Prepared{kSecond}, stamp);
  ASSERT_EQ(harness.body<Commit>(1).participants.size(), 1U);
  for (const ConnectionId island : {1, 2}) {
    Ready ready = harness.ready(harness.body<Lease>(island).ranges);
    ready.base_hash = kSecond;
    harness.say(island, ready, {.outer_step = 1});
  }
  const Stamp second = {.outer_step = 1, .attempt = harness.newest<Reduce>(1)->stamp.attempt};
  for (const ConnectionId island : {1, 2}) harness.say(island, Prepared{kFirst}, second);
  ASSERT_EQ(harness.body<Commit>(1).participants.size(), 2U);
  EXPECT_NEAR(timeout(), before, 1e-9);
}

TEST(Coordinator, WhatIsKnownOfALinkOutlivesItsConnection) {
  CoordinatorHarness harness = at_reduce();
  const auto beat = [&](ConnectionId island, Seconds late) {
    harness.say(island, Heartbeat{.sent = std::max(0.0, harness.now - late)});
  };
  for (int i = 0; i < 40; ++i, harness.now += 0.5) {
    for (const ConnectionId island : {1, 2}) beat(island, island == 2 && i >= 20 ? 5 : 0);
  }
  harness.close(2);
  harness.open(3);
  harness.say(3, harness.join("i2"));
  harness.say(3, Heartbeat{.sent = harness.now});
  harness.wait(8, {1});
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kSuspect), 0)
      << "it had 5 s of queue";
  harness.wait(8, {1});
  EXPECT_EQ(harness.coordinator->members().count(IslandState::kSuspect), 1);
}

TEST(Coordinator, RoundsGrowForOneThatCannotFetchTheStateInOne) {
  CoordinatorHarness harness = at_reduce();
  std::int64_t step = 0;
  ConnectionId fetcher = 0;
  // Inner steps of the rounds that so many outer steps lead to.
  const auto rounds = [&](int count) {
    std::vector<std::int64_t> leased;
    for (int i = 0; i < count; ++i, ++step) {
      const Stamp stamp = {.outer_step = step, .attempt = harness.newest<Reduce>(1)->stamp.attempt};
      const StateHash result = {9, static_cast<std::uint64_t>(step)};
      if (fetcher != 0) harness.say(fetcher, Heartbeat{.sent = harness.now, .heard = {1}});
      for (const ConnectionId island : {1, 2}) harness.say(island, Prepared{result}, stamp);
      leased.push_back(harness.body<Lease>(1).inner_steps);
      for (const ConnectionId island : {1, 2}) {
        Ready ready = harness.ready(harness.body<Lease>(island).ranges);
        ready.base_hash = result;
        harness.say(island, ready, {.outer_step = step + 1});
      }
    }
    return leased;
  };
  EXPECT_THAT(rounds(5), Each(4));
  harness.open(3);
  Join late = harness.join("i3");
  late.outer_step = -1;
  late.hashes.clear();
  harness.say(3, late);
  ASSERT_EQ(harness.coordinator->members().count(IslandState::kSyncing), 1);
  EXPECT_THAT(rounds(5), Each(4)) << "nothing has come to it: it reaches nobody";
  fetcher = 3;
  EXPECT_THAT(rounds(4), ElementsAre(4, 4, 8, 16));
  harness.close(3);
  harness.open(4);
  harness.say(4, late);
  fetcher = 0;
  EXPECT_THAT(rounds(2), ElementsAre(32, 32)) << "what its link is has not changed";
  fetcher = 4;
  EXPECT_THAT(rounds(8), ElementsAre(32, 64, 64, 64, 64, 4, 4, 4)) << "in the end it is given up";
  EXPECT_EQ(harness.body<Lease>(1).round_begin, harness.body<Lease>(2).round_begin);
  EXPECT_EQ(harness.body<Lease>(1).round_begin, harness.body<Lease>(1).ranges.front().begin);
}

TEST(Coordinator, WhoComesIntoALongerRoundEndsWithTheOthers) {
  CoordinatorHarness harness = at_reduce();
  const auto beat = [&](ConnectionId island, std::vector<IslandId> heard) {
    harness.say(island, Heartbeat{.batches_per_second = 2, .sent = harness.now, .heard = heard});
  };
  harness.open(3);
  Join late = harness.join("i3");
  late.outer_step = -1;
  late.hashes.clear();
  harness.say(3, late);
  StateHash result;
  for (std::int64_t step = 0; step < 4; ++step) {
    for (const ConnectionId island : {1, 2}) beat(island, {});
    beat(3, {1, 2});
    result = {9, static_cast<std::uint64_t>(step)};
    const Stamp stamp = {.outer_step = step, .attempt = harness.newest<Reduce>(1)->stamp.attempt};
    for (const ConnectionId island : {1, 2}) harness.say(island, Prepared{result}, stamp);
    if (step == 3) break;
    for (const ConnectionId island : {1, 2}) {
      Ready ready = harness.ready(harness.body<Lease>(island).ranges);
      ready.base_hash = result;
      harness.say(island, ready, {.outer_step = step + 1});
    }
  }
  ASSERT_EQ(harness.body<Lease>(1).inner_steps, 16);
  harness.now += 3;  // six steps of the sixteen
  for (const ConnectionId island : {1, 2, 3}) beat(island, {});
  harness.say(3, Synced{.outer_step = 4,
                        .hashes = {result},
                        .answers = harness.newest<Welcome>(3)->stamp.sequence});
  ASSERT_NE(harness.newest<Lease>(3), nullptr);
  EXPECT_EQ(harness.body<Lease>(3).inner_steps, 10);
  EXPECT_EQ(harness.body<Lease>(3).round_begin, harness.body<Lease>(1).round_begin) << "one clock";
  EXPECT_EQ(harness.coordinator->members().all()[2].overtaken, 4);
  for (const ConnectionId island : {3, 1, 2}) {  // it is not waited for
    Ready ready = harness.ready(harness.body<Lease>(island).ranges);
    ready.base_hash = result;
    harness.say(island, ready, {.outer_step = 4});
  }
  const Stamp last = {.outer_step = 4, .attempt = harness.newest<Reduce>(1)->stamp.attempt};
  for (const ConnectionId island : {1, 2, 3}) harness.say(island, Prepared{kFirst}, last);
  ASSERT_EQ(harness.body<Commit>(3).participants.size(), 3U);
  EXPECT_EQ(harness.coordinator->members().all()[2].overtaken, 0) << "the next time is another one";
}

// It never was ready: it was stopped while the other one made an outer step and left.
TEST(Coordinator, TheStateThatAnIslandJoinedWithIsTheNewestWhenAllOthersHaveLeft) {
  CoordinatorHarness harness;
  harness.come(1);
  harness.come(2);
  harness.say(2, harness.ready({{4, 8}}));
  harness.wait(2, {1, 2});
  harness.say(2, Prepared{kSecond}, {.outer_step = 0, .attempt = 1});
  ASSERT_EQ(harness.coordinator->state().outer_step(), 1);
  harness.say(1, ReduceFailed{.unreachable = {}, .why = "it has no result of that outer step"});
  harness.say(2, Leave{.why = "it was asked to"}, {.outer_step = 1});
  harness.wait(harness.options.void_after + 1, {1});
  EXPECT_EQ(harness.coordinator->state().outer_step(), 1) << "it may be fetching the newest";
  harness.confirm(1);
  EXPECT_EQ(harness.coordinator->state().outer_step(), 0);
  EXPECT_EQ(harness.body<Resync>(1).outer_step, 0);
  EXPECT_THAT(harness.body<Resync>(1).hashes, ElementsAre(kFirst));
}

TEST(Coordinator, AConnectionThatNeverJoinsIsClosed) {
  CoordinatorHarness harness;
  harness.open(5);
  harness.wait(harness.options.join_within + 1, {});
  EXPECT_THAT(harness.closed, ElementsAre(5));
}

TEST(Coordinator, WhatAJoinDoesNotHoldReturns) {
  CoordinatorHarness harness = at_reduce();
  harness.close(1);
  harness.come(1, {{0, 4}});  // its second lease was lost with the connection
  EXPECT_THAT(harness.coordinator->state().leases().held_by(1), ElementsAre(BatchRange{0, 4}));
  EXPECT_FALSE(harness.body<Welcome>(1).must_sync);
}

TEST(Coordinator, TheEndOfTheRunIsSharedOut) {
  CoordinatorHarness harness;
  harness.options.plan.total_batches = 10;
  harness.log.clear();
  harness.restart();
  harness.come(1);
  harness.come(2);
  harness.say(1, harness.ready({{0, 4}}));
  harness.say(2, harness.ready({{4, 8}}));
  EXPECT_EQ(harness.body<Lease>(1).inner_steps, 1);
  EXPECT_EQ(harness.body<Lease>(2).inner_steps, 1);
}

TEST(Coordinator, SlowerIslandsTakeFewerStepsUnlessNearlyAsFast) {
  CoordinatorHarness harness(3);
  for (const ConnectionId island : {1, 2, 3}) harness.come(island);
  harness.say(1, Heartbeat{.inner_steps = 0, .batches_per_second = 8});
  harness.say(2, Heartbeat{.inner_steps = 0, .batches_per_second = 7.6});
  harness.say(3, Heartbeat{.inner_steps = 0, .batches_per_second = 2});
  harness.say(1, harness.ready({{0, 4}}));
  harness.say(2, harness.ready({{4, 8}}));
  harness.say(3, harness.ready({{8, 12}}));
  EXPECT_EQ(harness.body<Lease>(1).inner_steps, 4);
  EXPECT_EQ(harness.body<Lease>(2).inner_steps, 4);
  EXPECT_EQ(harness.body<Lease>(3).inner_steps, 1);
  for (const ConnectionId island : {1, 2, 3}) {
    EXPECT_EQ(harness.body<Lease>(island).round_begin, 12);
    EXPECT_EQ(harness.body<Lease>(island).round_batches, 9) << "of all of them";
  }
}

TEST(Coordinator, WhatComesBackUntrainedIsNotCountedAsDone) {
  CoordinatorHarness harness = at_reduce();  // both have their second leases
  ASSERT_EQ(harness.body<Lease>(1).round_begin, 8);
  harness.say(2, Leave{.why = "it was stopped"});
  harness.say(1, Prepared{kFirst}, {.attempt = harness.newest<Reduce>(1)->stamp.attempt});
  Ready ready = harness.ready(harness.body<Lease>(1).ranges);
  harness.say(1, ready, {.outer_step = 1});
  harness.wait(3, {1});
  const Lease& third = harness.body<Lease>(1);
  EXPECT_EQ(third.round_batches, third.inner_steps) << "it is alone";
  EXPECT_EQ(third.round_begin,
            harness.coordinator->state().leases().num_given() - third.inner_steps);
  EXPECT_LT(third.round_begin, harness.coordinator->state().leases().high_water());
}

TEST(Coordinator, ALogThatContradictsItselfIsAnError) {
  CoordinatorHarness harness = at_reduce();
  harness.log.push_back({.unix_seconds = 0, .body = LogCommit{.outer_step = 3, .attempt = 1}});
  try {
    Coordinator(harness.options, 9, harness.log);
    FAIL() << "it was believed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDamaged);
    EXPECT_THAT(error.what(), HasSubstr("a commit out of order, of outer step 3"));
  }
}

TEST(Coordinator, ContributorsWeighAsTheirTokens) {
  CoordinatorHarness harness;
  harness.come(1);
  harness.come(2);
  Ready much = harness.ready({{0, 4}});
  much.tokens = 300;
  harness.say(1, much);
  harness.say(2, harness.ready({{4, 8}}));
  const auto& participants = harness.body<Reduce>(1).participants;
  ASSERT_EQ(participants.size(), 2U);
  EXPECT_DOUBLE_EQ(participants[0].weight, 0.75);
  EXPECT_DOUBLE_EQ(participants[1].weight, 0.25);
}

// Islands that only call out: 1 and 2, which have the state, and 3, which has none.
void come_without_addresses(CoordinatorHarness& harness) {
  for (const ConnectionId island : {1, 2, 3}) {
    harness.open(island);
    Join join = harness.join(fmt::format("i{}", island));
    join.address = "";
    if (island == 3) {
      join.outer_step = -1;
      join.hashes = {};
    }
    harness.say(island, join);
  }
}

TEST(Coordinator, WhenTheOneThatPutsTheStateIsGoneAnotherOneIsAsked) {
  CoordinatorHarness harness;
  come_without_addresses(harness);
  const IslandId putter = harness.body<Welcome>(3).sources.at(0).island;
  const IslandId other = 3 - putter;
  EXPECT_EQ(harness.newest<PutState>(other), nullptr);
  harness.close(putter);
  EXPECT_THAT(harness.body<PutState>(other).hashes, ElementsAre(kFirst));
  EXPECT_EQ(harness.body<Resync>(3).sources.at(0).island, other);
  EXPECT_FALSE(harness.body<Resync>(3).drops_work);
  // With nobody left, what was put may still be enough: nothing is begun anew.
  harness.heard.clear();
  harness.close(other);
  EXPECT_EQ(harness.newest<Resync>(3), nullptr);
}

TEST(Coordinator, OneThatHasTheStateAlreadyIsPutNothing) {
  CoordinatorHarness harness;
  for (const ConnectionId island : {1, 2, 3}) {
    harness.open(island);
    // Batches that nobody leased to it: they are dropped, and its state is the run's.
    Join join = harness.join(fmt::format("i{}", island));
    if (island == 3) join.holds = {{900, 904}};
    join.address = "";
    harness.say(island, join);
  }
  EXPECT_TRUE(harness.body<Welcome>(3).must_sync);
  for (const ConnectionId island : {1, 2}) EXPECT_EQ(harness.newest<PutState>(island), nullptr);
}

TEST(Coordinator, WhereAllOnlyCallOutOneIsAskedToPutTheStateWhereItIsFetched) {
  CoordinatorHarness harness;
  come_without_addresses(harness);
  const auto& sources = harness.body<Welcome>(3).sources;
  ASSERT_EQ(sources.size(), 1);
  EXPECT_EQ(sources[0].address, "");
  EXPECT_THAT(harness.body<PutState>(sources[0].island).hashes, ElementsAre(kFirst));
  EXPECT_EQ(harness.newest<PutState>(3 - sources[0].island), nullptr) << "one is enough";
  // One that others reach is asked for nothing.
  harness.come(4);
  harness.heard.clear();
  harness.open(5);
  Join late = harness.join("i5");
  late.outer_step = -1;
  late.hashes = {};
  harness.say(5, late);
  EXPECT_THAT(harness.body<Welcome>(5).sources, ElementsAre(Source{4, "i4:1"}));
  for (const ConnectionId island : {1, 2, 4}) EXPECT_EQ(harness.newest<PutState>(island), nullptr);
}

TEST(Coordinator, OneIslandWithoutAnAddressMakesItAStar) {
  CoordinatorHarness harness(1);
  harness.open(1);
  Join join = harness.join("i1");
  join.address.clear();
  harness.say(1, join);
  harness.say(1, harness.ready({{0, 4}}));
  EXPECT_TRUE(harness.body<Reduce>(1).is_star);
}

}  // namespace
}  // namespace atl::island
