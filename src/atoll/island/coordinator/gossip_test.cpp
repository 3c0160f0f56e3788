// Outer steps of partners, each island with a state of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "atoll/island/coordinator/testing.h"

namespace atl::island {
namespace {

using ::testing::Contains;
using testing::CoordinatorHarness;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kFirst;
using ::testing::SizeIs;

// Four islands, ready for outer step 0, with four batches each of `total`.
class GossipHarness : public CoordinatorHarness {
 public:
  explicit GossipHarness(std::int64_t total = 1000) : CoordinatorHarness(4) {
    options.plan.is_gossip = true;
    options.plan.total_batches = total;
    --fence;
    log.clear();
    restart();
    for (const ConnectionId id : {1, 2, 3, 4}) come(id);
    for (const ConnectionId id : {1, 2, 3, 4}) say(id, ready(leased(id)));
  }
  std::vector<BatchRange> leased(ConnectionId id) {
    return coordinator->state().leases().held_by(static_cast<IslandId>(id));
  }
  std::vector<IslandId> partners(ConnectionId id) {
    std::vector<IslandId> islands;
    for (const Participant& one : body<Reduce>(id).participants) islands.push_back(one.island);
    return islands;
  }
  void prepare(ConnectionId id, StateHash hash) {
    say(id, Prepared{hash}, stamp_of(*newest<Reduce>(id)));
  }
  static Stamp stamp_of(const Stamped<ToIsland>& message) {
    return {.outer_step = message.stamp.outer_step, .attempt = message.stamp.attempt};
  }
  const LogCommit& last_commit() const {
    for (auto record = log.rbegin(); record != log.rend(); ++record) {
      if (const auto* commit = std::get_if<LogCommit>(&record->body)) return *commit;
    }
    static const LogCommit kNone = {.outer_step = -1};
    return kNone;
  }
};

constexpr StateHash kOne = {11, 1};
constexpr StateHash kOther = {22, 2};

TEST(Gossip, PairsAreCommittedEachWithItsOwnResult) {
  GossipHarness run;
  EXPECT_EQ(run.partners(1), (std::vector<IslandId>{1, 2}));
  EXPECT_EQ(run.partners(4), (std::vector<IslandId>{3, 4}));
  EXPECT_EQ(run.body<Reduce>(1).participants.front().weight, 0.5);
  for (const ConnectionId id : {1, 2}) run.prepare(id, kOne);
  EXPECT_EQ(run.newest<Commit>(1), nullptr) << "the other exchange is under way";
  for (const ConnectionId id : {3, 4}) run.prepare(id, kOther);
  EXPECT_EQ(run.body<Commit>(1).hash, kOne);
  EXPECT_EQ(run.body<Commit>(4).hash, kOther);
  EXPECT_THAT(run.body<Commit>(4).participants, SizeIs(2));
  EXPECT_EQ(run.last_commit().results, (std::vector<StateHash>{kOne, kOne, kOther, kOther}));
}

// A partner that dies in an exchange ends that one alone; who is left of it hands in again.
TEST(Gossip, ADeadPartnerDelaysNobodyElse) {
  GossipHarness run;
  const std::vector<BatchRange> of_one = run.leased(1);
  for (const ConnectionId id : {3, 4}) run.prepare(id, kOther);
  run.close(2);
  EXPECT_EQ(run.last_commit().results, (std::vector<StateHash>{{}, {}, kOther, kOther}));
  EXPECT_EQ(run.body<Commit>(4).hash, kOther);
  EXPECT_THAT(run.partners(1), IsEmpty()) << "its state stays";
  EXPECT_EQ(run.body<Commit>(1).hash, kFirst);
  EXPECT_THAT(run.body<Commit>(1).participants, IsEmpty());
  EXPECT_NE(run.newest<Dropped>(1), nullptr);
  EXPECT_TRUE(run.coordinator->state().leases().holds(1, of_one));
  EXPECT_EQ(run.coordinator->state().newest_result(1).outer_step, -1);
}

TEST(Gossip, WhoDiesAfterItsExchangeIsDoneIsInIt) {
  GossipHarness run;
  for (const ConnectionId id : {1, 2}) run.prepare(id, kOne);
  run.close(2);
  for (const ConnectionId id : {3, 4}) run.prepare(id, kOther);
  EXPECT_EQ(run.last_commit().results, (std::vector<StateHash>{kOne, kOne, kOther, kOther}));
  // It comes back with the state of before, and gets what its partner has.
  run.open(12);
  run.say(12, run.join("i2"));
  EXPECT_TRUE(run.body<Welcome>(12).must_sync);
  EXPECT_EQ(run.body<Welcome>(12).hashes, (std::vector<StateHash>{kOne}));
  ASSERT_THAT(run.body<Welcome>(12).sources, SizeIs(1));
  EXPECT_EQ(run.body<Welcome>(12).sources.front().island, 1U);
}

// Its own state is as good as any: nothing is fetched, also after the coordinator was started
// again.
TEST(Gossip, WhoMissedOnlyOthersStepsGoesOnWithItsOwnState) {
  GossipHarness run;
  for (const ConnectionId id : {1, 2}) run.prepare(id, kOne);
  for (const ConnectionId id : {3, 4}) run.prepare(id, kOther);
  run.restart();
  run.open(11);
  Join join = run.join("i1", {});
  join.outer_step = 1;
  join.hashes = {kOne};
  run.say(11, join);
  EXPECT_FALSE(run.body<Welcome>(11).must_sync);
  run.open(13);
  Join wrong = run.join("i3", {});
  wrong.outer_step = 1;
  wrong.hashes = {{99, 9}};
  run.say(13, wrong);
  EXPECT_TRUE(run.body<Welcome>(13).must_sync);
  EXPECT_EQ(run.body<Welcome>(13).hashes, (std::vector<StateHash>{kOne}));
}

TEST(Gossip, TheRunEndsWithTheMeanOfAll) {
  GossipHarness run(16);
  for (const ConnectionId id : {1, 2}) run.prepare(id, kOne);
  for (const ConnectionId id : {3, 4}) run.prepare(id, kOther);
  EXPECT_TRUE(run.coordinator->state().leases().is_done());
  EXPECT_FALSE(run.coordinator->is_finished());
  for (const ConnectionId id : {1, 2, 3, 4}) {
    ASSERT_NE(run.newest<Lease>(id), nullptr);
    EXPECT_THAT(run.body<Lease>(id).ranges, IsEmpty()) << "its state is asked for";
  }
  for (const ConnectionId id : {1, 2, 3, 4}) {
    run.say(id, Ready{.base_hash = id < 3 ? kOne : kOther}, {.outer_step = 1});
  }
  EXPECT_THAT(run.partners(1), SizeIs(4));
  EXPECT_EQ(run.body<Reduce>(1).participants.front().weight, 0.25);
  constexpr StateHash kMean = {33, 3};
  for (const ConnectionId id : {1, 2, 3, 4}) run.prepare(id, kMean);
  EXPECT_TRUE(run.coordinator->is_finished());
  EXPECT_THAT(run.last_commit().results, IsEmpty());
  EXPECT_EQ(run.body<Commit>(3).hash, kMean);
  EXPECT_NE(run.newest<Finish>(3), nullptr);
}

// The one that disagrees with whomever it meets computes wrongly.
TEST(Gossip, WhoDisagreesWithEveryPartnerIsTurnedOut) {
  GossipHarness run;
  for (int i = 0; i < 3; ++i) {
    for (const ConnectionId id : {1, 2, 3, 4}) {
      const auto wrong = static_cast<std::uint64_t>(100 * (i + 1) + 4);
      const auto of_pair = static_cast<std::uint64_t>(1000 * (i + 1)) + run.partners(id).front();
      run.prepare(id, id == 4 ? StateHash{wrong, 1} : StateHash{of_pair, 1});
    }
    for (const ConnectionId id : {1, 2, 3, 4}) {
      if (run.coordinator->members()[static_cast<IslandId>(id)].state() != IslandState::kActive) {
        continue;
      }
      Ready again = run.ready(run.leased(id));
      again.base_hash = run.body<Commit>(id).hash;
      run.say(id, again, {.outer_step = run.coordinator->state().outer_step()});
    }
  }
  EXPECT_EQ(run.coordinator->members()[4].state(), IslandState::kOut);
  EXPECT_THAT(run.notices, Contains(HasSubstr("differ from those of all its partners")));
  EXPECT_EQ(run.coordinator->halted(), "");
}

// Nobody has a result that the log names, and what the run began with is in no log.
TEST(Gossip, AfterARestartTheRunGoesOnWithTheStateOfTheBeginning) {
  GossipHarness run;
  for (const ConnectionId id : {1, 2}) run.prepare(id, kOne);
  run.close(3);
  ASSERT_EQ(run.coordinator->state().outer_step(), 1);
  run.restart();
  run.heard.clear();
  for (const ConnectionId id : {3, 4}) {
    run.open(10 + id);
    Join join = run.join(fmt::format("i{}", id));
    join.outer_step = 1;
    run.say(10 + id, join);
  }
  run.wait(run.options.void_after + 1, {13, 14});
  EXPECT_EQ(run.coordinator->state().outer_step(), 1) << "there is nothing to make void";
  ASSERT_NE(run.newest<Resync>(13), nullptr);
  EXPECT_EQ(run.body<Resync>(13).hashes, (std::vector<StateHash>{kFirst}));
  run.say(13, Synced{.outer_step = 1,
                     .hashes = {kFirst},
                     .holds = {},
                     .answers = run.newest<Resync>(13)->stamp.sequence});
  EXPECT_EQ(run.coordinator->members()[3].state(), IslandState::kActive);
  EXPECT_EQ(run.body<Resync>(14).hashes, (std::vector<StateHash>{kFirst}));
}

TEST(Gossip, AResultIsNotTheBeginningAlsoWhenItIsVoid) {
  RunState state(/*num_fragments=*/1, /*total_batches=*/100);
  state.apply(LogLease{.island = 1, .ranges = {{0, 4}}});
  LogContribution one;
  one.participant.island = 1;
  one.consumed = {{0, 4}};
  one.exchange = 1;
  state.apply(LogReduce{.outer_step = 0, .attempt = 1, .contributions = {one}});
  state.apply(LogCommit{.outer_step = 0, .attempt = 1, .hash = kOther, .results = {kOne}});
  EXPECT_FALSE(state.may_be_first(kOne));
  EXPECT_TRUE(state.may_be_first(kFirst));
  state.apply(LogVoid{.first_outer_step = 0, .why = ""});
  EXPECT_FALSE(state.may_be_first(kOne));
  state.learn_first(kFirst);
  EXPECT_FALSE(state.may_be_first(kOther)) << "it is known";
}

// It was ready with a state whose hash the coordinator has heard, and has lost what was made of it.
TEST(Gossip, WhoHasLostItsResultAndIsAloneGoesOnWithWhatItHandedItInOn) {
  GossipHarness run;
  for (const ConnectionId id : {1, 2}) run.prepare(id, kOne);
  for (const ConnectionId id : {3, 4}) run.prepare(id, kOther);
  for (const ConnectionId id : {2, 3, 4}) run.close(id);
  run.say(1, ReduceFailed{.unreachable = {}, .why = "its result has another hash"});
  run.wait(run.options.void_after + 1, {1});
  run.confirm(1);
  EXPECT_EQ(run.coordinator->state().outer_step(), 0);
  EXPECT_EQ(run.body<Resync>(1).hashes, (std::vector<StateHash>{kFirst}));
}

}  // namespace
}  // namespace atl::island
