#include "atoll/launch/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/launch/members.h"

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

TEST(Roster, ALostRankIsLeftOutOnceAndThenReplaced) {
  Roster roster(kHere, {.min_ranks = 2, .max_ranks = 4});
  EXPECT_THAT(roster.next(), SizeIs(4));
  EXPECT_EQ(roster.num_next(), roster.num_taken());
  roster.lose({.lost = {2}});
  EXPECT_THAT(roster.next(), SizeIs(3));
  EXPECT_GT(roster.num_next(), roster.num_taken());
  EXPECT_THAT(roster.next(), SizeIs(4));
}

TEST(Roster, LossesInARowTakeOneEach) {
  Roster roster(kHere, {.min_ranks = 2, .max_ranks = 4});
  roster.next();
  roster.lose({.lost = {0, 3}});
  EXPECT_THAT(roster.next(), SizeIs(2));
  roster.lose({.lost = {1}});
  EXPECT_THAT(roster.next(), SizeIs(3)) << "the two of before are back, one is out";
}

TEST(Roster, FewerThanTheMinimumAreFilledUpAtOnce) {
  Roster roster(kHere, {.min_ranks = 4, .max_ranks = 4});
  roster.next();
  roster.lose({.lost = {1, 2}});
  EXPECT_THAT(roster.next(), SizeIs(4));
}

TEST(Roster, AHostThatIsGoneIsLeftOutUntilItReturns) {
  Roster roster(kTwo, {.min_ranks = 1, .max_ranks = 4});
  EXPECT_THAT(roster.next(), ElementsAre("a", "a", "b", "b"));
  roster.lose({.lost = {2, 3}, .gone = {"b"}});
  EXPECT_THAT(roster.next(), ElementsAre("a", "a"));
  EXPECT_THAT(roster.next(), ElementsAre("a", "a"));
  EXPECT_EQ(roster.num_next(), roster.num_taken());
  EXPECT_THAT(roster.gone(), ElementsAre("b"));
  roster.return_hosts({"b"});
  EXPECT_GT(roster.num_next(), roster.num_taken());
  EXPECT_THAT(roster.next(), ElementsAre("a", "a", "b", "b"));
}

TEST(Roster, WithTooFewHostsThereIsNoNext) {
  Roster roster(kTwo, {.min_ranks = 3, .max_ranks = 4});
  roster.next();
  roster.lose({.lost = {0}, .gone = {"a"}});
  EXPECT_THAT(roster.next(), IsEmpty());
}

TEST(Roster, TheHostfileMayGrowAndShrink) {
  Roster roster({{.name = "a", .slots = 1}}, {.min_ranks = 1, .max_ranks = 3});
  EXPECT_THAT(roster.next(), ElementsAre("a"));
  roster.update(kTwo);
  EXPECT_GT(roster.num_next(), roster.num_taken());
  EXPECT_THAT(roster.next(), ElementsAre("a", "a", "b")) << "no more than the maximum";
  roster.update({{.name = "b", .slots = 2}});
  roster.lose({.lost = {0}});
  EXPECT_THAT(roster.next(), ElementsAre("b", "b"));
}

TEST(Roster, LimitsThatCannotBeMetAreRefused) {
  EXPECT_THROW(Roster(kHere, {.min_ranks = 3, .max_ranks = 2}), Error);
  EXPECT_THROW(Roster(kHere, {.min_ranks = 5, .max_ranks = 8}), Error);
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
  const auto members = gloo_members(call, {"", "b"}, {.rendezvous = "tcp://h:7", .generation = 3});
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].reach, Reach::kHere);
  EXPECT_THAT(members[0].argv, Contains("--rank=0"));
  EXPECT_THAT(members[0].argv, Contains("--generation=3"));
  EXPECT_THAT(members[0].argv, Not(Contains("--watch-input")));
  EXPECT_EQ(members[1].reach, Reach::kSsh);
  EXPECT_EQ(members[1].argv.front(), "ssh");
  EXPECT_THAT(members[1].argv.back(),
              testing::StartsWith("cd /srv/me && exec '/opt/a b/atoll' train r.toml --rank=1 "));
  EXPECT_THAT(members[1].argv.back(), HasSubstr("--watch-input"));
}

TEST(Members, OneMpirunStartsAll) {
  const auto members = mpi_members({.program = "atoll"}, {"", "b", "b"});
  ASSERT_EQ(members.size(), 1U);
  EXPECT_THAT(members[0].argv, Contains("localhost:1,b:2"));
  EXPECT_THAT(mpi_members({.program = "atoll"}, {"", ""})[0].argv, Not(Contains("--host")));
}

TEST(ShellCommand, OddWordsAreQuoted) {
  EXPECT_EQ(shell_command({"a", "b c", "", "it's", "$x", "--k=v"}),
            R"(a 'b c' '' 'it'\''s' '$x' --k=v)");
}

TEST(Roster, InPlaceALostRankIsReplacedAtOnceAndAtARestartOneLater) {
  Roster roster(kTwo, {.min_ranks = 1, .max_ranks = 4});
  roster.next();
  roster.drop(1, /*is_gone=*/false);  // of a
  EXPECT_EQ(roster.num_free(), 1);
  EXPECT_THAT(roster.grow(5), ElementsAre("a"));
  EXPECT_EQ(roster.num_free(), 0);
  roster.drop(1, /*is_gone=*/false);  // of b, which has moved down
  EXPECT_THAT(roster.next(), ElementsAre("a", "a", "b"));
  EXPECT_THAT(roster.next(), SizeIs(4));
}

TEST(Roster, InPlaceAHostThatIsGoneIsNotTakenUntilItReturns) {
  Roster roster(kTwo, {.min_ranks = 1, .max_ranks = 4});
  roster.next();
  roster.drop(3, /*is_gone=*/true);
  roster.drop(2, /*is_gone=*/true);
  EXPECT_THAT(roster.gone(), ElementsAre("b"));
  EXPECT_THAT(roster.grow(4), IsEmpty());
  roster.return_hosts({"b"});
  EXPECT_THAT(roster.grow(1), ElementsAre("b"));
}

TEST(Roster, InPlaceASparePlaceIsTakenBeforeTheLostOne) {
  Roster roster(kTwo, {.min_ranks = 1, .max_ranks = 3});
  EXPECT_THAT(roster.next(), ElementsAre("a", "a", "b"));
  EXPECT_EQ(roster.num_spare(), 0) << "there may be no more";
  roster.drop(0, /*is_gone=*/false);
  EXPECT_EQ(roster.num_free(), 1);
  EXPECT_EQ(roster.num_spare(), 1);
  EXPECT_THAT(roster.grow(9), ElementsAre("b"));
  roster.drop(0, /*is_gone=*/false);
  EXPECT_EQ(roster.num_spare(), 0) << "both places of a have lost a rank";
  EXPECT_THAT(roster.grow(9), ElementsAre("a"));
}

TEST(Roster, MorePlacesMayBeWaitedFor) {
  EXPECT_THROW(Roster({{.name = "", .slots = 1}}, {.min_ranks = 2, .max_ranks = 4}), Error);
  Roster roster({{.name = "", .slots = 1}}, {.min_ranks = 2, .max_ranks = 4}, /*may_wait=*/true);
  EXPECT_EQ(roster.num_there(), 1);
  EXPECT_THAT(roster.next(), IsEmpty());
  roster.update({{.name = "", .slots = 1}, {.name = "beta", .slots = 2}});
  EXPECT_EQ(roster.num_there(), 3);
  EXPECT_THAT(roster.next(), ElementsAre("", "beta", "beta"));
  roster.update({{.name = "", .slots = 1}});  // beta has left
  EXPECT_EQ(roster.num_there(), 1);
}

TEST(Roster, InPlaceItGrowsToTheMostAndToWhatWasLeftOut) {
  Roster roster(kHere, {.min_ranks = 1, .max_ranks = 3});
  roster.next();
  roster.trim(2);
  EXPECT_EQ(roster.num_free(), 1);
  roster.update({{.name = "", .slots = 9}});
  EXPECT_THAT(roster.grow(9), SizeIs(1));
}

}  // namespace
}  // namespace atl::launch
