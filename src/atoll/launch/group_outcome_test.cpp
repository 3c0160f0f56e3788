#include "atoll/launch/group_outcome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "atoll/comm/world.h"
#include "atoll/launch/hosts.h"

namespace atl::launch {
namespace {

using Kind = GroupOutcome::Kind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RankReport peer_report(int rank, int peer) {
  return {.rank = rank, .kind = ErrorKind::kPeer, .peer = peer, .error = "a peer is missing"};
}

TEST(GroupOutcome, AllAtTheEndIsDone) {
  EXPECT_EQ(outcome_of({.ranks = {{.rank = 1}, {.rank = 0}}}).kind, Kind::kDone);
}

TEST(GroupOutcome, AKilledRankIsTheCauseWhateverTheOthersSayAndWhenTheyEnd) {
  const GroupOutcome outcome =
      outcome_of({.ranks = {{.rank = 0, .exit_code = 1, .report = peer_report(0, 2)},
                            {.rank = 2, .pid = 77, .signal = SIGKILL},
                            {.rank = 1, .signal = SIGKILL, .ended_by_us = true}},
                  .step = 17});
  EXPECT_EQ(outcome.kind, Kind::kFailed);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.cause, "rank 2 (pid 77) was killed by signal 9 (Killed) after step 17");
  EXPECT_THAT(outcome.lost, ElementsAre(2));
  EXPECT_THAT(outcome.gone, IsEmpty());
}

TEST(GroupOutcome, SeveralKilledRanksAreAllNamed) {
  const GroupOutcome outcome = outcome_of({.ranks = {{.rank = 3, .pid = 9, .signal = SIGSEGV},
                                                     {.rank = 1, .pid = 8, .signal = SIGKILL}}});
  EXPECT_THAT(outcome.cause, AllOf(HasSubstr("rank 3 (pid 9)"), HasSubstr("rank 1 (pid 8)"),
                                   HasSubstr("before its first step")));
  EXPECT_THAT(outcome.lost, ElementsAre(1, 3));
}

TEST(GroupOutcome, ASignalThatComesBeforeARankCanTakeItIsNoFailure) {
  const GroupOutcome outcome =
      outcome_of({.ranks = {{.rank = 0, .exit_code = 1, .report = peer_report(0, 1)},
                            {.rank = 1, .pid = 8, .signal = SIGINT}},
                  .stop_signal = SIGINT});
  EXPECT_EQ(outcome.kind, Kind::kStopped);
  EXPECT_EQ(outcome.exit_code, 130);
}

TEST(GroupOutcome, AUsersMistakeIsToldAsItIsAndExitsWithTwo) {
  const RankReport report = {.rank = 1, .kind = ErrorKind::kUser, .error = "set run.dir"};
  const GroupOutcome outcome = outcome_of(
      {.ranks = {{.rank = 0, .exit_code = 2}, {.rank = 1, .exit_code = 2, .report = report}}});
  EXPECT_EQ(outcome.kind, Kind::kMistake);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.cause, "set run.dir");
}

TEST(GroupOutcome, AnErrorOfItsOwnComesBeforeThoseAboutPeers) {
  const RankReport full = {.rank = 1, .kind = ErrorKind::kIo, .error = "the disk is full"};
  const GroupOutcome outcome =
      outcome_of({.ranks = {{.rank = 0, .exit_code = 1, .report = peer_report(0, 1)},
                            {.rank = 1, .exit_code = 1, .report = full}}});
  EXPECT_EQ(outcome.cause, "rank 1: the disk is full");
  EXPECT_THAT(outcome.lost, IsEmpty()) << "it can be started again where it was";
}

TEST(GroupOutcome, OfSilenceThoseThatHadToBeEndedAreLost) {
  const GroupOutcome outcome =
      outcome_of({.ranks = {{.rank = 0, .exit_code = 1, .report = peer_report(0, -1)},
                            {.rank = 1, .exit_code = 1, .report = peer_report(1, -1)},
                            {.rank = 2, .signal = SIGKILL, .ended_by_us = true}}});
  EXPECT_EQ(outcome.cause, "rank 0: a peer is missing");
  EXPECT_THAT(outcome.lost, ElementsAre(2));
}

TEST(GroupOutcome, OfSilenceWithoutAnyLeftTheOneThatIsAccused) {
  const GroupOutcome outcome =
      outcome_of({.ranks = {{.rank = 0, .exit_code = 1, .report = peer_report(0, 1)},
                            {.rank = 1, .exit_code = 1, .report = peer_report(1, 0)}}});
  EXPECT_THAT(outcome.lost, ElementsAre(1));
}

TEST(GroupOutcome, AStopThatWasAskedForIsNoFailure) {
  const GroupEnd asked = {.ranks = {{.rank = 0, .exit_code = 143}, {.rank = 1, .exit_code = 143}},
                          .stop_signal = SIGTERM};
  EXPECT_EQ(outcome_of(asked).kind, Kind::kStopped);
  EXPECT_EQ(outcome_of(asked).exit_code, 143);
  // The second signal finds the default action.
  const GroupEnd twice = {.ranks = {{.rank = 0, .signal = SIGINT}, {.rank = 1, .exit_code = 130}},
                          .stop_signal = SIGINT};
  EXPECT_EQ(outcome_of(twice).exit_code, 130);
  // Someone asked one rank, and all agreed.
  EXPECT_EQ(outcome_of({.ranks = {{.rank = 0, .exit_code = 143}}}).kind, Kind::kStopped);
  // So they do where nobody reads what the lead prints.
  EXPECT_EQ(outcome_of({.ranks = {{.rank = 0, .exit_code = 141}}}).exit_code, 141);
  EXPECT_EQ(outcome_of({.ranks = {{.rank = 0, .exit_code = 141}}}).kind, Kind::kStopped);
  // But a SIGTERM that kills without being passed on is a death.
  EXPECT_EQ(outcome_of({.ranks = {{.rank = 0, .signal = SIGTERM}}}).kind, Kind::kFailed);
}

TEST(GroupOutcome, RanksThatASecondSignalHadToEndWereStopped) {
  const GroupEnd end = {.ranks = {{.rank = 0, .signal = SIGKILL, .ended_by_us = true}},
                        .stop_signal = SIGINT};
  EXPECT_EQ(outcome_of(end).kind, Kind::kStopped);
  EXPECT_EQ(outcome_of(end).exit_code, 130);
}

TEST(GroupOutcome, ARankThatIsLostBeforeItsFirstStepIsLostAfterThatOfTheCheckpoint) {
  const auto cause_after = [](std::int64_t begun_at, std::int64_t step) {
    return outcome_of({.ranks = {{.signal = SIGKILL}}, .step = step, .begun_at = begun_at}).cause;
  };
  EXPECT_THAT(cause_after(-1, -1), HasSubstr(" before its first step was done"));
  EXPECT_THAT(cause_after(0, -1), HasSubstr(" before its first step was done"));
  EXPECT_THAT(cause_after(800, -1), HasSubstr(" after step 800"));
  EXPECT_THAT(cause_after(800, 812), HasSubstr(" after step 812"));
}

TEST(GroupOutcome, AnUnreachableHostIsGone) {
  const GroupOutcome outcome = outcome_of(
      {.ranks = {{.rank = 1, .host = "n2", .exit_code = 255, .last_line = "No route to host"}}});
  EXPECT_THAT(outcome.cause, AllOf(HasSubstr("rank 1 on n2"), HasSubstr("No route to host")));
  EXPECT_THAT(outcome.lost, ElementsAre(1));
  EXPECT_THAT(outcome.gone, ElementsAre("n2"));
}

TEST(GroupOutcome, AProgramThatCannotRunIsToldByItsLastWords) {
  const GroupOutcome outcome =
      outcome_of({.ranks = {{.rank = 0, .pid = 5, .exit_code = 127, .last_line = "cannot run x"}}});
  EXPECT_EQ(outcome.cause, "rank 0 (pid 5) ended with exit code 127: cannot run x");
}

TEST(RankReport, ComesBackFromItsLine) {
  const RankReport step = {.rank = 3, .step = 12};
  const std::string line = report_line(step);
  const auto back = parse_report(std::string_view(line).substr(0, line.size() - 1));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->rank, 3);
  EXPECT_EQ(back->step, 12);
  const std::string begin = report_line({.rank = 1, .pid = 77});
  EXPECT_EQ(parse_report(std::string_view(begin).substr(0, begin.size() - 1))->pid, 77);
  const std::string from = report_line({.rank = 1, .begun = 800});
  EXPECT_EQ(parse_report(std::string_view(from).substr(0, from.size() - 1))->begun, 800);
  for (const ErrorKind kind :
       {ErrorKind::kUser, ErrorKind::kIo, ErrorKind::kDamaged, ErrorKind::kResource,
        ErrorKind::kNumeric, ErrorKind::kPeer, ErrorKind::kInternal}) {
    const std::string text =
        report_line({.rank = 1, .kind = kind, .peer = 2, .error = "what is  wrong"});
    const auto error = parse_report(std::string_view(text).substr(0, text.size() - 1));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, kind);
    EXPECT_EQ(error->peer, 2);
    EXPECT_EQ(error->step, -1);
    EXPECT_EQ(error->error, "what is  wrong");
  }
}

TEST(RankReport, OtherLinesAreNone) {
  for (const char* line : {"", "error: x", "\x1e",
                           "\x1e"
                           "1",
                           "\x1e"
                           "1 step",
                           "\x1e"
                           "1 step x",
                           "\x1e"
                           "1 step -4",
                           "\x1e"
                           "x step 4",
                           "\x1e"
                           "1 error",
                           "\x1e"
                           "1 error odd 1 x",
                           "\x1e"
                           "1 error io x y",
                           "\x1e"
                           "99999999999999 step 1"}) {
    EXPECT_FALSE(parse_report(line)) << line;
  }
}

TEST(Hostfile, NamesAndSlots) {
  const std::vector<Host> hosts =
      parse_hostfile("# a ring\nalpha slots=2\n\n  user@beta-1.net   # one rank\n", "hosts");
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].name, "alpha");
  EXPECT_EQ(hosts[0].slots, 2);
  EXPECT_EQ(hosts[1].name, "user@beta-1.net");
  EXPECT_EQ(hosts[1].slots, 1);
}

TEST(Hostfile, MistakesAreNamedByLine) {
  for (const char* bad : {"", "# none\n", "a\n-oProxyCommand=x\n", "a\nb;rm slots=1\n",
                          "a\nb slots=0\n", "a\nb slots=x\n", "a\nb slots=99999\n",
                          "a\nb cores=2\n", "a\nb slots=2 more\n", "a\na slots=2\n"}) {
    try {
      parse_hostfile(bad, "hosts");
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUser);
      EXPECT_THAT(error.what(), HasSubstr(*bad == 'a' ? "hosts:2: " : "hosts: "));
    }
  }
}

}  // namespace
}  // namespace atl::launch
