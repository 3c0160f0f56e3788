#include "atoll/launch/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/launch/rank_processes.h"

namespace atl::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const std::vector<Host> kHere = {{.name = "", .slots = 4}};
const std::vector<Host> kTwo = {{.name = "a", .slots = 2}, {.name = "b", .slots = 2}};

TEST(Slots, ALostRankIsLeftOutOnceAndThenReplaced) {
  Slots slots(kHere, {.min_ranks = 2, .max_ranks = 4});
  EXPECT_THAT(slots.next(), SizeIs(4));
  EXPECT_EQ(slots.num_next(), slots.num_taken());
  slots.lose({.lost = {2}});
  EXPECT_THAT(slots.next(), SizeIs(3));
  EXPECT_GT(slots.num_next(), slots.num_taken());
  EXPECT_THAT(slots.next(), SizeIs(4));
}

TEST(Slots, AHostHasFreePlacesUntilRanksHaveAllOfThem) {
  Slots slots(kTwo, {.min_ranks = 1, .max_ranks = 3});
  EXPECT_TRUE(slots.has_free("a"));
  slots.next();
  EXPECT_FALSE(slots.has_free("a"));
  EXPECT_TRUE(slots.has_free("b")) << "one of two";
  EXPECT_FALSE(slots.has_free("c"));
}

TEST(Slots, LossesInARowTakeOneEach) {
  Slots slots(kHere, {.min_ranks = 2, .max_ranks = 4});
  slots.next();
  slots.lose({.lost = {0, 3}});
  EXPECT_THAT(slots.next(), SizeIs(2));
  slots.lose({.lost = {1}});
  EXPECT_THAT(slots.next(), SizeIs(3)) << "the two of before are back, one is out";
}

TEST(Slots, FewerThanTheMinimumAreFilledUpAtOnce) {
  Slots slots(kHere, {.min_ranks = 4, .max_ranks = 4});
  slots.next();
  slots.lose({.lost = {1, 2}});
  EXPECT_THAT(slots.next(), SizeIs(4));
}

TEST(Slots, AHostThatIsGoneIsLeftOutUntilItReturns) {
  Slots slots(kTwo, {.min_ranks = 1, .max_ranks = 4});
  EXPECT_THAT(slots.next(), ElementsAre("a", "a", "b", "b"));
  slots.lose({.lost = {2, 3}, .gone = {"b"}});
  EXPECT_THAT(slots.next(), ElementsAre("a", "a"));
  EXPECT_THAT(slots.next(), ElementsAre("a", "a"));
  EXPECT_EQ(slots.num_next(), slots.num_taken());
  EXPECT_THAT(slots.gone(), ElementsAre("b"));
  slots.return_hosts({"b"});
  EXPECT_GT(slots.num_next(), slots.num_taken());
  EXPECT_THAT(slots.next(), ElementsAre("a", "a", "b", "b"));
}

TEST(Slots, WithTooFewHostsThereIsNoNext) {
  Slots slots(kTwo, {.min_ranks = 3, .max_ranks = 4});
  slots.next();
  slots.lose({.lost = {0}, .gone = {"a"}});
  EXPECT_THAT(slots.next(), IsEmpty());
}

TEST(Slots, TheHostfileMayGrowAndShrink) {
  Slots slots({{.name = "a", .slots = 1}}, {.min_ranks = 1, .max_ranks = 3});
  EXPECT_THAT(slots.next(), ElementsAre("a"));
  slots.update(kTwo);
  EXPECT_GT(slots.num_next(), slots.num_taken());
  EXPECT_THAT(slots.next(), ElementsAre("a", "a", "b")) << "no more than the maximum";
  slots.update({{.name = "b", .slots = 2}});
  slots.lose({.lost = {0}});
  EXPECT_THAT(slots.next(), ElementsAre("b", "b"));
}

TEST(Slots, LimitsThatCannotBeMetAreRefused) {
  EXPECT_THROW(Slots(kHere, {.min_ranks = 3, .max_ranks = 2}), Error);
  EXPECT_THROW(Slots(kHere, {.min_ranks = 5, .max_ranks = 8}), Error);
}

TEST(Placement, FillsHostsInTheirOrder) {
  EXPECT_THAT(place_ranks(kTwo, 0, "hosts"), ElementsAre("a", "a", "b", "b"));
  EXPECT_THAT(place_ranks(kTwo, 3, "hosts"), ElementsAre("a", "a", "b"));
  EXPECT_THAT(place_ranks({{.name = "localhost"}}, 0, "hosts"), ElementsAre(""));
  try {
    place_ranks(kTwo, 5, "hosts");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("hosts has 4 slots"));
  }
}

TEST(Members, EachRankIsToldWhoItIs) {
  const TrainCall call = {
      .program = "/opt/a b/atoll", .directory = "/srv/me", .arguments = {"r.toml"}};
  const auto processes =
      rendezvous_processes(call, {"", "b"}, {.rendezvous = "tcp://h:7", .generation = 3});
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].reach, Reach::kHere);
  EXPECT_THAT(processes[0].argv, Contains("--rank=0"));
  EXPECT_THAT(processes[0].argv, Contains("--generation=3"));
  EXPECT_THAT(processes[0].argv, Not(Contains("--watch-input")));
  EXPECT_EQ(processes[1].reach, Reach::kSsh);
  EXPECT_EQ(processes[1].argv.front(), "ssh");
  EXPECT_THAT(processes[1].argv.back(),
              testing::StartsWith("cd /srv/me && exec '/opt/a b/atoll' train r.toml --rank=1 "));
  EXPECT_THAT(processes[1].argv.back(), HasSubstr("--watch-input"));
}

TEST(Members, OneMpirunStartsAll) {
  const auto processes = mpirun_processes({.program = "atoll"}, {"", "b", "b"}, "mpi");
  ASSERT_EQ(processes.size(), 1U);
  EXPECT_THAT(processes[0].argv, Contains("localhost:1,b:2"));
  EXPECT_THAT(processes[0].argv, Contains("--backend=mpi"));
  EXPECT_THAT(mpirun_processes({.program = "atoll"}, {"", ""}, "mpi")[0].argv,
              Not(Contains("--host")));
}

TEST(ShellCommand, OddWordsAreQuoted) {
  EXPECT_EQ(shell_command({"a", "b c", "", "it's", "$x", "--k=v"}),
            R"(a 'b c' '' 'it'\''s' '$x' --k=v)");
}

TEST(Slots, InPlaceALostRankIsReplacedAtOnceAndAtARestartOneLater) {
  Slots slots(kTwo, {.min_ranks = 1, .max_ranks = 4});
  slots.next();
  slots.drop(1, /*is_gone=*/false);  // of a
  EXPECT_EQ(slots.num_free(), 1);
  EXPECT_THAT(slots.grow(5), ElementsAre("a"));
  EXPECT_EQ(slots.num_free(), 0);
  slots.drop(1, /*is_gone=*/false);  // of b, which has moved down
  EXPECT_THAT(slots.next(), ElementsAre("a", "a", "b"));
  EXPECT_THAT(slots.next(), SizeIs(4));
}

TEST(Slots, InPlaceAHostThatIsGoneIsNotTakenUntilItReturns) {
  Slots slots(kTwo, {.min_ranks = 1, .max_ranks = 4});
  slots.next();
  slots.drop(3, /*is_gone=*/true);
  slots.drop(2, /*is_gone=*/true);
  EXPECT_THAT(slots.gone(), ElementsAre("b"));
  EXPECT_THAT(slots.grow(4), IsEmpty());
  slots.return_hosts({"b"});
  EXPECT_THAT(slots.grow(1), ElementsAre("b"));
}

TEST(Slots, InPlaceASparePlaceIsTakenBeforeTheLostOne) {
  Slots slots(kTwo, {.min_ranks = 1, .max_ranks = 3});
  EXPECT_THAT(slots.next(), ElementsAre("a", "a", "b"));
  EXPECT_EQ(slots.num_spare(), 0) << "there may be no more";
  slots.drop(0, /*is_gone=*/false);
  EXPECT_EQ(slots.num_free(), 1);
  EXPECT_EQ(slots.num_spare(), 1);
  EXPECT_THAT(slots.grow(9), ElementsAre("b"));
  slots.drop(0, /*is_gone=*/false);
  EXPECT_EQ(slots.num_spare(), 0) << "both places of a have lost a rank";
  EXPECT_THAT(slots.grow(9), ElementsAre("a"));
}

TEST(Slots, MorePlacesMayBeWaitedFor) {
  EXPECT_THROW(Slots({{.name = "", .slots = 1}}, {.min_ranks = 2, .max_ranks = 4}), Error);
  Slots slots({{.name = "", .slots = 1}}, {.min_ranks = 2, .max_ranks = 4}, /*may_wait=*/true);
  EXPECT_EQ(slots.num_there(), 1);
  EXPECT_THAT(slots.next(), IsEmpty());
  slots.update({{.name = "", .slots = 1}, {.name = "beta", .slots = 2}});
  EXPECT_EQ(slots.num_there(), 3);
  EXPECT_THAT(slots.next(), ElementsAre("", "beta", "beta"));
  slots.update({{.name = "", .slots = 1}});  // beta has left
  EXPECT_EQ(slots.num_there(), 1);
}

TEST(Slots, InPlaceItGrowsToTheMostAndToWhatWasLeftOut) {
  Slots slots(kHere, {.min_ranks = 1, .max_ranks = 3});
  slots.next();
  slots.trim(2);
  EXPECT_EQ(slots.num_free(), 1);
  slots.update({{.name = "", .slots = 9}});
  EXPECT_THAT(slots.grow(9), SizeIs(1));
}

}  // namespace
}  // namespace atl::launch
