#include "atoll/island/client/member.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace atl::island {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr StateHash kFirst = {1, 1};
constexpr StateHash kSecond = {2, 2};
constexpr StateHash kThird = {3, 3};

// Plays the coordinator, the trainer and the exchange to a member.
class Stage {
 public:
  explicit Stage(MemberStart start = {.outer_step = 0, .hashes = {kFirst}})
      : member({.name = "lyon"}, start) {
    happen(CoordinatorReached{});
  }

  template <typename What>
  void happen(What what) {
    for (MemberAction& action : member.handle({now, std::move(what)})) {
      actions.push_back(std::move(action));
    }
  }
  Stamp stamp(std::int64_t outer_step, std::uint32_t attempt = 0) {
    return {.fence = 1,
            .view = 1,
            .outer_step = outer_step,
            .attempt = attempt,
            .sequence = ++sequence};
  }
  void hear(ToIsland body, std::int64_t outer_step = 0, std::uint32_t attempt = 0) {
    happen(CoordinatorSaid{{stamp(outer_step, attempt), std::move(body)}});
  }
  void welcome() { hear(Welcome{.island = 1, .outer_step = 0, .hashes = {kFirst}}); }
  void hand_in() {
    happen(RoundDone{.num_adopted = 0,
                     .outer_step = 0,
                     .ready = {.base_hash = kFirst, .tokens = 9, .consumed = {{0, 4}}}});
  }
  // Leased, trained, handed in and prepared at outer step 0.
  void prepare() {
    welcome();
    hear(Lease{.ranges = {{0, 4}}, .inner_steps = 4});
    hand_in();
    const Stamp reduce = stamp(0, 1);
    happen(CoordinatorSaid{{reduce, Reduce{}}});
    happen(ReduceDone{reduce, kSecond});
  }
  template <typename Action>
  int count() const {
    int all = 0;
    for (const MemberAction& action : actions) all += std::holds_alternative<Action>(action);
    return all;
  }
  template <typename Action>
  Action newest() const {
    for (auto action = actions.rbegin(); action != actions.rend(); ++action) {
      if (const auto* found = std::get_if<Action>(&*action)) return *found;
    }
    ADD_FAILURE() << "there is no such action";
    return {};
  }
  template <typename Body>
  bool has_said() const {
    return std::any_of(actions.begin(), actions.end(), [](const MemberAction& action) {
      const auto* send = std::get_if<SendToCoordinator>(&action);
      return send != nullptr && std::holds_alternative<Body>(send->message.body);
    });
  }
  // The newest message of that kind.
  template <typename Body>
  Body said() const {
    for (auto action = actions.rbegin(); action != actions.rend(); ++action) {
      const auto* send = std::get_if<SendToCoordinator>(&*action);
      if (send == nullptr) continue;
      if (const auto* body = std::get_if<Body>(&send->message.body)) return *body;
    }
    ADD_FAILURE() << "nothing like that was said";
    return {};
  }

  Seconds now = 0;
  std::uint64_t sequence = 0;
  Member member;
  std::vector<MemberAction> actions;
};

Commit commit_of(const StateHash& hash, IslandId island) {
  return {.fragment = 0, .hash = hash, .participants = {{.island = island, .weight = 1}}};
}

TEST(Member, SwapsWhatIsCommittedAndKnowsItsPart) {
  for (const IslandId participant : {1U, 2U}) {
    Stage stage;
    stage.prepare();
    EXPECT_EQ(stage.said<Prepared>().hash, kSecond);
    stage.hear(commit_of(kSecond, participant), 0, 1);
    EXPECT_EQ(stage.newest<Swap>().was_mine, participant == 1);
    EXPECT_EQ(stage.member.outer_step(), 1);
    EXPECT_THAT(stage.member.hashes(), ElementsAre(kSecond));
    EXPECT_EQ(stage.member.holds().empty(), participant == 1);
  }
}

TEST(Member, AskedWhatTheRunsStateIsItAnswersWithItsOwn) {
  Stage stage;
  stage.welcome();
  stage.hear(Resync{.outer_step = 0, .sources = {{1, "lyon:1"}}, .why = "it is the newest left"});
  EXPECT_THAT(stage.said<Synced>().hashes, ElementsAre(kFirst));
  EXPECT_EQ(stage.count<FetchState>(), 0);
}

TEST(Member, AStateWithoutHashesIsNotFetched) {
  Stage stage({.outer_step = 3, .hashes = {kThird}});
  stage.hear(Welcome{.island = 1, .outer_step = 0, .hashes = {kFirst}, .must_sync = true});
  stage.hear(Resync{.outer_step = 0, .sources = {{2, "oslo:1"}}, .why = "it is the newest left"});
  EXPECT_EQ(stage.count<FetchState>(), 0);
}

TEST(Member, NeverSwapsAnotherResultThanWasCommitted) {
  Stage stage;
  stage.prepare();
  stage.hear(commit_of(kThird, 1), 0, 1);
  EXPECT_EQ(stage.count<Swap>(), 0);
  EXPECT_THAT(stage.said<ReduceFailed>().why, HasSubstr("another hash"));
}

TEST(Member, DropsLowerStampsAndSequencesItHasSeen) {
  Stage stage;
  stage.welcome();
  Stamp old = stage.stamp(0, 1);
  stage.happen(CoordinatorSaid{{stage.stamp(0, 2), Reduce{}}});
  const int reduces = stage.count<StartReduce>();
  old.sequence = 1000;  // newer by its number, older by its attempt
  stage.happen(CoordinatorSaid{{old, AbandonReduce{}}});
  EXPECT_EQ(stage.count<StopReduce>(), 0);
  Stamp seen = stage.stamp(0, 2);
  seen.sequence = 2;
  stage.happen(CoordinatorSaid{{seen, Reduce{}}});
  EXPECT_EQ(stage.count<StartReduce>(), reduces);
}

TEST(Member, GoesOnAfterACoordinatorRestart) {
  Stage stage;
  stage.welcome();
  stage.hear(Lease{.ranges = {{0, 4}}, .inner_steps = 4});
  stage.happen(CoordinatorLost{"it died"});
  EXPECT_EQ(stage.count<Connect>(), 1);
  stage.hand_in();  // the trainer has not noticed
  stage.happen(CoordinatorReached{});
  EXPECT_THAT(stage.said<Join>().holds, ElementsAre(BatchRange{0, 4}));
  Stamp newer = {.fence = 2, .view = 1, .sequence = 1};
  stage.happen(
      CoordinatorSaid{{newer, Welcome{.island = 1, .hashes = {kFirst}, .holds = {{0, 4}}}}});
  EXPECT_THAT(stage.said<Ready>().consumed, ElementsAre(BatchRange{0, 4}));
}

TEST(Member, SwapsWhatWasCommittedWhileItWasAway) {
  for (const bool contributed : {true, false}) {
    Stage stage;
    stage.prepare();
    stage.happen(CoordinatorLost{"it died"});
    stage.happen(CoordinatorReached{});
    const std::vector<BatchRange> holds =
        contributed ? std::vector<BatchRange>() : std::vector<BatchRange>{{0, 4}};
    stage.hear(Welcome{.island = 1,
                       .outer_step = 1,
                       .hashes = {kSecond},
                       .must_sync = true,
                       .holds = holds,
                       .contributed = contributed},
               1);
    EXPECT_EQ(stage.newest<Swap>().was_mine, contributed);
    EXPECT_EQ(stage.count<FetchState>(), 0);
    EXPECT_EQ(stage.said<Synced>().answers, stage.sequence);
    EXPECT_EQ(stage.said<Synced>().holds, holds);
    EXPECT_EQ(stage.count<Adopt>(), 0);
  }
}

TEST(Member, DropsWorkOnBatchesThatAreNotItsOwnAnyMore) {
  Stage stage({.outer_step = 0, .hashes = {kFirst}, .holds = {{0, 4}}, .in_round = true});
  stage.hear(Welcome{.island = 1, .hashes = {kFirst}, .must_sync = true, .holds = {}});
  EXPECT_TRUE(stage.newest<Adopt>().drops_work);
  EXPECT_THAT(stage.said<Synced>().holds, IsEmpty());
  stage.hand_in();  // of what is dropped
  stage.hear(Lease{.ranges = {{8, 12}}, .inner_steps = 4});
  EXPECT_THAT(stage.member.holds(), ElementsAre(BatchRange{8, 12}));
  for (const MemberAction& action : stage.actions) {
    const auto* send = std::get_if<SendToCoordinator>(&action);
    EXPECT_FALSE(send != nullptr && std::holds_alternative<Ready>(send->message.body));
  }
}

TEST(Member, FetchesAndRebasesOrDrops) {
  for (const bool drops : {true, false}) {
    Stage stage({.outer_step = 0, .hashes = {kFirst}, .holds = {{0, 4}}, .in_round = true});
    stage.hear(Welcome{.island = 1, .hashes = {kFirst}, .holds = {{0, 4}}});
    stage.hear(Resync{.outer_step = 1,
                      .hashes = {kSecond},
                      .sources = {{2, "b:1"}},
                      .drops_work = drops,
                      .why = "test"},
               1);
    EXPECT_EQ(stage.newest<FetchState>().hashes, std::vector{kSecond});
    stage.happen(StateFetched{1, {kSecond}});
    EXPECT_EQ(stage.newest<Adopt>().drops_work, drops);
    EXPECT_EQ(stage.said<Synced>().holds.empty(), drops);
  }
}

TEST(Member, PutsItsStateToTheCoordinatorIfItIsTheRuns) {
  Stage stage;
  stage.welcome();
  stage.hear(PutState{{kSecond}});
  EXPECT_EQ(stage.count<UploadState>(), 0);
  stage.hear(PutState{{kFirst}});
  EXPECT_EQ(stage.newest<UploadState>().hashes, std::vector{kFirst});
}

TEST(Member, PutsTheStateOfTheOuterStepThatItIsStillMaking) {
  Stage stage;
  stage.welcome();
  const Stamp reduce = stage.stamp(0, 1);
  stage.happen(CoordinatorSaid{{reduce, Reduce{}}});
  stage.hear(Commit{.hash = kSecond}, 0, 1);
  stage.hear(PutState{{kSecond}}, 1);
  EXPECT_EQ(stage.count<UploadState>(), 0);
  stage.happen(ReduceDone{reduce, kSecond});
  EXPECT_EQ(stage.newest<UploadState>().hashes, std::vector{kSecond});
  EXPECT_EQ(stage.count<UploadState>(), 1);
}

TEST(Member, PutsTheStateThatItIsItselfFetching) {
  Stage stage;
  stage.welcome();
  stage.hear(Resync{.outer_step = 1, .hashes = {kSecond}, .sources = {{.island = 2}}}, 1);
  stage.hear(PutState{{kSecond}}, 1);
  EXPECT_EQ(stage.count<UploadState>(), 0);
  stage.happen(StateFetched{1, {kSecond}});
  EXPECT_EQ(stage.newest<UploadState>().hashes, std::vector{kSecond});
}

TEST(Member, PutsOnlyWhatIsNotThereYet) {
  Stage stage({.outer_step = 0, .hashes = {kFirst, kSecond}});
  stage.hear(Welcome{.island = 1, .outer_step = 0, .hashes = {kFirst, kSecond}});
  stage.hear(PutState{{{}, kSecond}});
  EXPECT_THAT(stage.newest<UploadState>().hashes, ElementsAre(StateHash{}, kSecond));
}

TEST(Member, AsksAgainForWhatCouldNotBeFetched) {
  Stage stage({.outer_step = -1});
  stage.hear(Welcome{.island = 1,
                     .outer_step = 1,
                     .hashes = {kSecond},
                     .must_sync = true,
                     .sources = {{2, "b:1"}}},
             1);
  // Soon at first, then once a second.
  for (const Seconds after : {0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0}) {
    stage.happen(FetchFailed{"no route"});
    stage.actions.clear();
    stage.now += 0.9 * after;
    stage.happen(MemberTicked{});
    EXPECT_FALSE(stage.has_said<ReduceFailed>());
    stage.now += 0.2 * after;
    stage.happen(MemberTicked{});
    EXPECT_THAT(stage.said<ReduceFailed>().why, HasSubstr("could not be fetched"));
    stage.hear(Resync{.outer_step = 1, .hashes = {kSecond}, .sources = {{2, "b:1"}}}, 1);
  }
}

TEST(Member, ItsHeartbeatSaysWhoseBytesHaveCome) {
  Stage stage;
  stage.welcome();
  stage.happen(MemberTicked{{3, 2}});
  EXPECT_THAT(stage.said<Heartbeat>().heard, ElementsAre(2, 3));
  stage.now += 0.1;
  stage.happen(MemberTicked{{4}});
  stage.now += 0.9;
  stage.happen(MemberTicked{});
  EXPECT_THAT(stage.said<Heartbeat>().heard, ElementsAre(4));
  EXPECT_EQ(stage.said<Heartbeat>().sent, 1);
  stage.now += 1;
  stage.happen(MemberTicked{});
  EXPECT_THAT(stage.said<Heartbeat>().heard, IsEmpty());
  stage.now += 0.1;
  stage.happen(MemberTicked{{5}});
  stage.happen(CoordinatorLost{"gone"});
  stage.now += 60;
  stage.happen(CoordinatorReached{});
  stage.hear(Welcome{.island = 1, .outer_step = 0, .hashes = {kFirst}});
  stage.happen(MemberTicked{});
  EXPECT_EQ(stage.said<Heartbeat>().sent, stage.now);
  EXPECT_THAT(stage.said<Heartbeat>().heard, IsEmpty()) << "that was long ago";
}

std::int64_t num_asked(const Stage& stage) {
  return std::count_if(stage.actions.begin(), stage.actions.end(), [](const MemberAction& action) {
    const auto* send = std::get_if<SendToCoordinator>(&action);
    return send != nullptr && std::holds_alternative<ReduceFailed>(send->message.body);
  });
}

// A link that held all of it back lets it through at once.
TEST(Member, AsksOnceForManyOuterStepsThatItMissed) {
  Stage stage;
  stage.welcome();
  for (std::int64_t step = 3; step < 6; ++step) {
    stage.hear(Reduce{}, step, 1);
    stage.hear(commit_of(kSecond, 2), step, 1);
  }
  EXPECT_EQ(num_asked(stage), 1);
  stage.hear(Resync{.outer_step = 6, .hashes = {kThird}, .sources = {{.island = 2}}}, 6);
  EXPECT_EQ(stage.count<FetchState>(), 1);
  stage.happen(FetchFailed{"gone"});
  stage.now += 2;
  stage.happen(MemberTicked{});
  EXPECT_EQ(num_asked(stage), 2) << "that answer came, and was no use";
  // One that may not be heard as it is meant is not the last.
  Stage other;
  other.prepare();
  other.hear(AbandonReduce{}, 0, 1);
  other.hear(commit_of(kSecond, 2), 0, 2);
  other.hear(Reduce{}, 1, 1);
  EXPECT_EQ(num_asked(other), 2);
}

TEST(Member, TheEndWaitsForTheLastResult) {
  Stage stage;
  stage.welcome();
  const Stamp reduce = stage.stamp(0, 1);
  stage.happen(CoordinatorSaid{{reduce, Reduce{}}});
  stage.hear(commit_of(kSecond, 2), 0, 1);
  stage.hear(Finish{.why = "done"}, 1);
  EXPECT_EQ(stage.count<Halt>(), 0);
  stage.happen(ReduceDone{reduce, kSecond});
  EXPECT_EQ(stage.member.outer_step(), 1);
  EXPECT_TRUE(stage.newest<Halt>().is_done);
}

TEST(Member, ARefusalIsFinalOrTriedAgain) {
  Stage stage;
  stage.hear(Refused{.why = "the name is taken", .is_final = false});
  EXPECT_EQ(stage.count<Connect>(), 1);
  stage.happen(CoordinatorReached{});
  stage.hear(Refused{.why = "another model", .is_final = true});
  EXPECT_FALSE(stage.newest<Halt>().is_done);
  EXPECT_THAT(stage.newest<Halt>().why, HasSubstr("another model"));
}

// An older ledger was put back: its coordinator's stamps are those of messages long ago.
TEST(Member, HearsWhyItIsRefusedByACoordinatorWithAnOlderLedger) {
  for (const std::uint64_t fence : {3, 2}) {
    Stage stage;
    stage.happen(CoordinatorSaid{{{.fence = 3, .view = 7, .outer_step = 9, .sequence = 50},
                                  Welcome{.island = 1, .outer_step = 9, .hashes = {kFirst}}}});
    stage.happen(CoordinatorLost{"it was stopped"});
    stage.happen(CoordinatorReached{});
    stage.happen(CoordinatorSaid{{{.fence = fence, .sequence = 1},
                                  Refused{.why = "its checkpoint is newer than the ledger"}}});
    EXPECT_FALSE(stage.newest<Halt>().is_done);
    EXPECT_TRUE(stage.newest<Halt>().is_mistake);
    EXPECT_THAT(stage.newest<Halt>().why, HasSubstr("newer than the ledger"));
  }
}

TEST(Member, EndsWhereTheCoordinatorGoesOnFromAnOlderLedger) {
  for (const std::uint64_t fence : {3, 2}) {
    Stage stage;
    const Welcome welcome = {.island = 1, .outer_step = 9, .hashes = {kFirst}};
    stage.happen(
        CoordinatorSaid{{{.fence = 3, .view = 7, .outer_step = 9, .sequence = 50}, welcome}});
    stage.happen(CoordinatorLost{"it was stopped"});
    stage.happen(CoordinatorReached{});
    stage.happen(
        CoordinatorSaid{{{.fence = fence, .view = 1, .outer_step = 5, .sequence = 60}, welcome}});
    EXPECT_FALSE(stage.newest<Halt>().is_done);
    EXPECT_TRUE(stage.newest<Halt>().is_mistake);
    EXPECT_THAT(stage.newest<Halt>().why,
                HasSubstr(fmt::format("at start {} and outer step 5", fence)));
    EXPECT_THAT(stage.newest<Halt>().why, HasSubstr("heard of start 3 and outer step 9"));
  }
}

TEST(Member, GivesUpWithoutACoordinatorInTheEnd) {
  Stage stage;
  for (; stage.count<Halt>() == 0 && stage.now < 1000; stage.now += 1) {
    stage.happen(CoordinatorLost{"refused"});
  }
  EXPECT_NEAR(stage.now, 600, 3);
  EXPECT_THAT(stage.newest<Halt>().why, HasSubstr("no coordinator for 601 s"));
}

TEST(Member, LeavesEvenIfNobodyAnswers) {
  Stage stage;
  stage.welcome();
  stage.happen(LeaveWanted{"SIGTERM"});
  EXPECT_EQ(stage.said<Leave>().why, "SIGTERM");
  stage.now = 6;
  stage.happen(MemberTicked{});
  EXPECT_TRUE(stage.newest<Halt>().is_done);
}

}  // namespace
}  // namespace atl::island
