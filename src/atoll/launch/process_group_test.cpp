#include "atoll/launch/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "atoll/base/files/file.h"

namespace atl::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

RankProcess shell(int rank, const std::string& script) {
  return {.rank = rank, .argv = {"sh", "-c", script}, .shows_output = rank == 0};
}

GroupEnd run(const std::vector<RankProcess>& processes, const GroupOptions& options = {}) {
  SignalFd signals;
  return run_group(processes, options, signals);
}

const GroupOptions kHasty = {.grace = milliseconds(100)};

// Whether a process is there and not merely waiting to be reaped by someone else.
bool lives(pid_t pid) {
  if (::kill(pid, 0) != 0) return false;
  const std::string stat = read_file(fmt::format("/proc/{}/stat", pid));
  return stat.find(") Z ") == stat.npos;
}

bool gone_soon(pid_t pid) {
  for (int i = 0; i < 60'000; ++i) {
    try {
      if (!lives(pid)) return true;
    } catch (const Error&) {  // it went between the two looks
      return true;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

TEST(Island, EndsWhenAllHave) {
  const GroupEnd end = run({shell(0, "exit 0"), shell(1, "exit 0")});
  EXPECT_EQ(end.ranks.size(), 2U);
  EXPECT_EQ(outcome_of(end).kind, GroupOutcome::Kind::kDone);
}

TEST(Island, AKilledRankTakesTheOthersAlongAfterTheGrace) {
  const GroupOutcome outcome = outcome_of(
      run({shell(0, "sleep 1000"), shell(1, "printf '\\0361 step 7\\n' >&3; kill -9 $$")}, kHasty));
  EXPECT_EQ(outcome.kind, GroupOutcome::Kind::kFailed);
  EXPECT_THAT(outcome.cause,
              AllOf(HasSubstr("rank 1 (pid "), HasSubstr("signal 9 (Killed) after step 7")));
  EXPECT_THAT(outcome.lost, ElementsAre(1));
}

TEST(Island, ItsLastStepIsThatItBeganWithUntilItHasTakenOne) {
  const std::string begin = R"(printf '\0361 begun 800\n' >&3; )";
  EXPECT_EQ(run({shell(1, begin)}).last_step(), 800);
  EXPECT_EQ(run({shell(1, begin + R"(printf '\0361 step 801\n' >&3)")}).last_step(), 801);
}

TEST(Island, ARankThatDoesNotEndInTimeIsAmongThoseEnded) {
  const std::string error = R"(printf '\0360 error peer 1 rank 1 is not here\n' >&3; exit 1)";
  const GroupOutcome outcome =
      outcome_of(run({shell(0, error), shell(1, "kill -STOP $$")}, kHasty));
  EXPECT_EQ(outcome.cause, "rank 0: rank 1 is not here");
  EXPECT_THAT(outcome.lost, ElementsAre(1));
}

TEST(Island, ThatWhichARankHasStartedEndsWithIt) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("isle-{}", ::getpid());
  run({shell(0, "sleep 100 & echo $! > " + file.string())});
  const pid_t pid = std::stoi(read_file(file));
  std::filesystem::remove(file);
  EXPECT_TRUE(gone_soon(pid));
}

TEST(Island, OthersThanTheFirstAreMarkedAndSayOnlyWhatMatters) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const std::string say =
      "echo unheard; echo info: hush >&2; echo warning: mind >&2; "
      "printf 'torn' >&2";
  run({shell(0, "echo first; exec 2>/dev/null; " + say), shell(1, say), shell(2, say)});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "first\nunheard\n");
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(err, AllOf(Not(HasSubstr("hush")), HasSubstr("] warning: mind\n")));
  EXPECT_EQ(err.find("mind"), err.rfind("mind")) << "the same line of two ranks is shown once";
  EXPECT_THAT(err, HasSubstr("torn\n"));
}

TEST(Island, ASignalIsPassedOn) {
  SignalFd signals;
  ::kill(::getpid(), SIGTERM);
  const std::string obey = "trap 'exit 143' TERM; while :; do sleep 0.01; done";
  const GroupEnd end = run_group({shell(0, obey), shell(1, obey)}, {}, signals);
  EXPECT_EQ(end.stop_signal, SIGTERM);
  EXPECT_FALSE(end.was_wanted);
  EXPECT_EQ(outcome_of(end).kind, GroupOutcome::Kind::kStopped);
  EXPECT_EQ(outcome_of(end).exit_code, 143);
}

int next_after(SignalFd& signals, int signal) {
  ::kill(::getpid(), signal);
  return signals.next();
}

// A scheduler's signal and a wrapper's copy.
TEST(SignalFd, ACopyOfASignalIsNoOther) {
  for (const int signal : kStopSignals) {
    SignalFd signals;
    EXPECT_EQ(next_after(signals, signal), signal);
    for (const int copy : kStopSignals) EXPECT_EQ(next_after(signals, copy), 0);
  }
}

TEST(SignalFd, WhatIsIgnoredStaysSo) {
  std::signal(SIGHUP, SIG_IGN);
  {
    SignalFd signals;
    EXPECT_EQ(next_after(signals, SIGHUP), 0);
    EXPECT_EQ(next_after(signals, SIGTERM), SIGTERM);
  }
  std::signal(SIGHUP, SIG_DFL);
}

TEST(SignalFd, Usr1ThatOnlySavesStopsNothing) {
  SignalFd signals;
  signals.pass_usr1_on();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(next_after(signals, SIGUSR1), SIGUSR1);
  EXPECT_TRUE(signals.only_saves(SIGUSR1));
  EXPECT_EQ(next_after(signals, SIGTERM), SIGTERM);
  EXPECT_FALSE(signals.only_saves(SIGTERM));
}

TEST(Island, PassesUsr1OnToRanksThatAreThere) {
  SignalFd signals;
  signals.pass_usr1_on();
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("atoll-usr1-{}", ::getpid());
  std::filesystem::remove(file);
  const std::string pid = file.string();
  const std::string tell = R"(printf '\036%d pid 7\n' $RANK >&3; )";
  // Rank 1 sends it over and over, until it has come back to itself and has ended rank 0: the group
  // may hear of either of them late.
  const std::string send = fmt::format(
      "while [ -z \"$came\" ] || [ ! -s {0} ] || kill -0 $(cat {0}) 2>/dev/null; "
      "do kill -USR1 {1}; sleep 0.01; done",
      pid, ::getpid());
  const GroupEnd end = run_group({shell(0, "RANK=0; trap 'exit 0' USR1; echo $$ >" + pid + "; " +
                                               tell + "while :; do sleep 0.01; done"),
                                  shell(1, "RANK=1; trap 'came=1' USR1; " + tell + send)},
                                 {}, signals);
  std::filesystem::remove(file);
  EXPECT_EQ(end.stop_signal, 0);
  EXPECT_EQ(outcome_of(end).kind, GroupOutcome::Kind::kDone);
}

TEST(Island, IsStoppedWhenItsOwnerWantsSo) {
  const std::string obey = "trap 'exit 143' TERM; while :; do sleep 0.01; done";
  int asked = 0;
  const GroupEnd end = run({shell(0, obey)}, {.wants_to_stop = [&] { return ++asked == 2; },
                                              .ask_every = milliseconds(50)});
  EXPECT_EQ(outcome_of(end).exit_code, 143);
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(end.was_wanted);
}

TEST(Island, AProgramThatIsNotThereIsNamed) {
  ::testing::internal::CaptureStderr();
  const GroupOutcome outcome = outcome_of(run({{.rank = 1, .argv = {"no-such-program-anywhere"}}}));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "it is told once, with the end";
  EXPECT_THAT(outcome.cause,
              AllOf(HasSubstr("exit code 127"), HasSubstr("cannot run no-such-program-anywhere")));
}

TEST(Island, DiesWithTheProcessThatStartedIt) {
  const auto file = std::filesystem::temp_directory_path() / fmt::format("isle-{}", ::getpid());
  const pid_t parent = ::fork();
  if (parent == 0) {
    run({shell(0, "echo $$ > " + file.string() + "~; mv " + file.string() + "~ " + file.string() +
                      "; exec sleep 100")});
    ::_exit(0);
  }
  for (int i = 0; i < 60'000 && !std::filesystem::exists(file); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  const pid_t rank = std::stoi(read_file(file));
  std::filesystem::remove(file);
  EXPECT_TRUE(lives(rank));
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(gone_soon(rank));
}

// Goes on without those that are told, and starts one more.
class RankKeeper final : public ElasticPolicy {
 public:
  bool goes_on_without(const RankEnd& end, std::int64_t step) override {
    lost.push_back(end.rank);
    last_step = step;
    if (goes_on) ranks.erase(end.rank);
    return goes_on;
  }
  std::vector<RankProcess> joining(std::int64_t step) override {
    seen_step = step;
    return std::exchange(joiners, {});
  }
  int rank_of(int number) const override { return ranks.count(number) > 0 ? number : -1; }

  bool goes_on = true;
  std::set<int> ranks = {0, 1, 2};
  std::vector<RankProcess> joiners;
  std::vector<int> lost;
  std::int64_t last_step = -1, seen_step = -1;
};

TEST(Island, GoesOnWithoutThoseItsKeeperGivesUp) {
  RankKeeper policy;
  const GroupEnd end = run({shell(0, "sleep 0.3"), shell(1, "kill -9 $$"),
                            shell(2, "printf '\\0362 step 7\\n' >&3; sleep 0.1; exit 1")},
                           {.grace = milliseconds(0), .policy = &policy});
  EXPECT_EQ(outcome_of(end).kind, GroupOutcome::Kind::kDone);
  EXPECT_EQ(end.ranks.size(), 1U);
  EXPECT_THAT(policy.lost, ElementsAre(1, 2));
  EXPECT_EQ(policy.last_step, 7);
}

TEST(Island, EndsWithThoseItsKeeperDoesNotGiveUp) {
  RankKeeper policy;
  policy.goes_on = false;
  const GroupOutcome outcome =
      outcome_of(run({shell(0, "sleep 100"), shell(1, "sleep 100"), shell(2, "kill -9 $$")},
                     {.grace = milliseconds(50), .policy = &policy}));
  EXPECT_EQ(outcome.kind, GroupOutcome::Kind::kFailed);
  EXPECT_THAT(policy.lost, ElementsAre(2)) << "the others were ended";
}

// A shell in mpirun's place.
RankProcess mpirun(int num_ranks, const std::string& script) {
  RankProcess process = shell(0, script);
  process.reach = Reach::kMpirun;
  process.num_ranks = num_ranks;
  return process;
}

TEST(Island, MpirunWhoseRanksAreNotAllThereIsEndedItself) {
  SignalFd signals;
  ::kill(::getpid(), SIGINT);
  const GroupEnd end = run_group({mpirun(2, R"(trap 'exit 1' TERM; printf '\0360 pid 71\n' >&2;)"
                                            "while :; do sleep 0.01; done")},
                                 {}, signals);
  EXPECT_EQ(outcome_of(end).kind, GroupOutcome::Kind::kStopped) << outcome_of(end).cause;
  EXPECT_EQ(outcome_of(end).exit_code, 130);
}

TEST(Island, MpirunWhoseRanksAreThereAsksThemToSave) {
  RankKeeper policy;  // which hears that they are there, by a step
  const GroupEnd end =
      run({mpirun(2, R"(trap 'exit 143' USR1; trap 'exit 9' TERM; printf '\0360 pid 71\n' >&2;)"
                     R"(printf '\0361 pid 72\n\0361 step 7\n' >&2; while :; do sleep 0.01; done)")},
          {.wants_to_stop = [&] { return policy.seen_step >= 7; },
           .policy = &policy,
           .ask_every = milliseconds(10)});
  EXPECT_EQ(outcome_of(end).kind, GroupOutcome::Kind::kStopped) << outcome_of(end).cause;
  EXPECT_EQ(outcome_of(end).exit_code, 143);
  EXPECT_TRUE(end.was_wanted);
}

TEST(Island, WhoHasNotJoinedWhenAllAreDoneIsEnded) {
  RankKeeper policy;
  policy.joiners = {shell(7, "sleep 1000")};  // longer than ctest waits
  const GroupEnd end = run({shell(0, "sleep 0.2"), shell(1, "exit 0")},
                           {.policy = &policy, .ask_every = milliseconds(1)});
  EXPECT_EQ(outcome_of(end).kind, GroupOutcome::Kind::kDone);
  EXPECT_EQ(end.ranks.size(), 2U);
}

}  // namespace
}  // namespace atl::launch
