// Elastic training by the program, and ranks under mpirun.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "ranks_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::Elastic;
using e2e::error_line;
using e2e::Finished;
using e2e::Hosts;
using e2e::kEndless;
using e2e::Program;
using e2e::Ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// State that only one rank has, so that a lost one is made good by a checkpoint.
std::vector<std::string> without_copies(std::vector<std::string> more, int steps = 300) {
  more.insert(more.end(), {"--dp.zero=1", "--launch.replicate=false"});
  return e2e::exact(std::move(more), steps);
}

TEST_F(Elastic, AKilledRankCostsNoBit) {
  train_whole(300);
  Program agent(
      launch("run", without_copies({"--min-ranks=2", "--max-ranks=3", "--max-restarts=3"})));
  ASSERT_TRUE(took("run", 50));
  const pid_t victim = process_of(1);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err,
              HasSubstr(fmt::format("warning: rank 1 (pid {}) was killed by signal 9", victim)));
  EXPECT_THAT(finished.err, HasSubstr("with 2 ranks (restart 1 of 3)"));
  EXPECT_EQ(weights("run", 300), weights("whole", 300));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Elastic, KillsAtAnyMomentCostNoBit) {
  train_whole(300);
  std::mt19937 random(7);
  for (int i = 0; i < num_kills(); ++i) {
    const std::string name = fmt::format("run-{}", i);
    Program agent(launch(name, without_copies({"--min-ranks=2", "--max-ranks=3"})));
    const auto moment = std::chrono::milliseconds(random() % 1500);
    const int rank = static_cast<int>(random() % 3);
    std::this_thread::sleep_for(moment);
    kill_rank(rank);
    const Finished finished = agent.wait();
    EXPECT_EQ(finished.exit_code, 0) << moment.count() << " ms, rank " << rank << finished.err;
    EXPECT_EQ(weights(name, 300), weights("whole", 300));
    EXPECT_THAT(processes(), IsEmpty());
  }
}

TEST_F(Elastic, LostRanksAreReplacedAtACheckpoint) {
  constexpr int kSteps = 2000;  // so many that one rank takes longer than --regrow-after
  train_whole(kSteps);
  Program agent(launch(
      "run", without_copies({"--min-ranks=1", "--max-ranks=2", "--regrow-after=0.2"}, kSteps)));
  ASSERT_TRUE(took("run", 30));
  ::kill(process_of(0), SIGKILL);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, AllOf(HasSubstr("with 1 rank (restart 1 of 3)"),
                                  HasSubstr("starting again from the checkpoint with more")));
  EXPECT_EQ(weights("run", kSteps), weights("whole", kSteps));
}

TEST_F(Elastic, WhatKeepsFailingEnds) {
  Program agent(launch("run", without_copies({"--max-ranks=2", "--max-restarts=1"}, kEndless)));
  for (int i = 0; i < 2; ++i) {
    pid_t victim = 0;
    ASSERT_TRUE(soon([&] { return (victim = process_of(0)) != 0; }));
    ::kill(victim, SIGKILL);
    ASSERT_TRUE(soon([&] { return process_of(0) != victim; }));
  }
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("all restarts are used up (--max-restarts=1)"));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Elastic, OverMpiToo) {
  if (!e2e::has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  train_whole(300);
  Program agent(launch("run", e2e::exact({"--min-ranks=2", "--max-ranks=3", "--backend=mpi"})));
  ASSERT_TRUE(took("run", 50));
  const pid_t victim = process_of(1);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, AllOf(HasSubstr("rank 1 (pid "), HasSubstr("signal 9 (Killed)"),
                                  HasSubstr("with 2 ranks (restart 1 of 3)")));
  EXPECT_EQ(weights("run", 300), weights("whole", 300));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Elastic, ASignalStopsItWithACheckpoint) {
  Program agent(launch("run", e2e::exact({"--max-ranks=2"}, kEndless)));
  ASSERT_TRUE(took("run", 10));
  agent.send(SIGINT);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 130) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("stopped by Ctrl-C"));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Elastic, ASignalToOneRankStopsAllWithACheckpoint) {
  Program agent(launch("run", without_copies({"--max-ranks=2"}, kEndless)));
  ASSERT_TRUE(took("run", 10));
  const pid_t rank = process_of(1);
  ASSERT_NE(rank, 0);
  ::kill(rank, SIGTERM);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 143) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("stopped by SIGTERM after step "));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Elastic, FewerRanksThanAskedForAreToldWithTheReason) {
  Program agent(launch("run", {"--max-ranks=4"}));
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("warning: beginning with 2 ranks instead of 4: train.batch_size = 4"),
                    HasSubstr("--train.micro_batch=1")));
}

TEST_F(Hosts, ThatCannotBeReachedAreNamed) {
  write_file(path("hosts"), "near-a\nfar-away\n");
  const Finished finished =
      run_ranks("run", {"--hostfile", path("hosts"), "--rendezvous=tcp://127.0.0.1:0"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("error: rank 1 on far-away: "), HasSubstr("no way to far-away")));
  EXPECT_TRUE(soon([&] { return processes().empty(); }));
}

TEST_F(Ranks, OverMpiGiveTheSameBits) {
  if (!e2e::has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  ASSERT_EQ(run_ranks("threads", {"-n", "2"}).exit_code, 0);
  const Finished mpi = run_ranks("mpi", {"-n", "2", "--backend=mpi"});
  ASSERT_EQ(mpi.exit_code, 0) << mpi.err;
  EXPECT_EQ(weights("mpi"), weights("threads"));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Ranks, OverMpiAMistakeIsOneLine) {
  if (!e2e::has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  for (const char* mistake : {"--train.micro_batch=4", "--data.text=no/such.txt"}) {
    const Finished finished = run_ranks("run", {"-n", "2", "--backend=mpi", mistake});
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    error_line(finished);
  }
}

TEST_F(Ranks, UnderMpirunAKilledOneEndsTheJob) {
  if (!e2e::has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  Program parent(ranked("run", {"-n", "3", "--backend=mpi", "--train.batch_size=6",
                                "--train.steps=10000000", "--log.every=1"}));
  ASSERT_TRUE(trains_soon("run"));
  const pid_t victim = process_of(2);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  const Finished finished = parent.wait();
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT("\n" + finished.err,
              HasSubstr(fmt::format("\nerror: rank 2 (pid {}) was killed by signal 9", victim)));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Ranks, UnderMpirunASignalStopsThemWithACheckpoint) {
  if (!e2e::has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  Program parent(
      ranked("run", {"-n", "2", "--backend=mpi", "--train.steps=10000000", "--log.every=1"}));
  ASSERT_TRUE(trains_soon("run"));
  parent.send(SIGTERM);
  const Finished finished = parent.wait();
  EXPECT_EQ(finished.exit_code, 143) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("stopped by SIGTERM after step "));
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Ranks, UnderMpirunASignalBeforeTheFirstStepStopsThemToo) {
  if (!e2e::has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const auto has_mpirun = [this] {
    const std::vector<pid_t> all = processes();
    return std::any_of(all.begin(), all.end(),
                       [](pid_t pid) { return command_line(pid).starts_with("mpirun "); });
  };
  for (const int signal : {SIGTERM, SIGINT}) {
    for (const bool has_ranks : {false, true}) {
      Program parent(ranked("run", {"-n", "2", "--backend=mpi", "--train.steps=10000000"}));
      ASSERT_TRUE(soon([&] { return has_ranks ? process_of(1) != 0 : has_mpirun(); }));
      parent.send(signal);
      const Finished finished = parent.wait();
      EXPECT_EQ(finished.exit_code, 128 + signal) << has_ranks << finished.err;
      EXPECT_THAT(finished.err, Not(HasSubstr("error: ")));
      EXPECT_TRUE(soon([&] { return processes().empty(); }));
    }
  }
}

TEST_F(Ranks, MpirunMayBeCalledDirectly) {
  if (!e2e::has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  std::string words =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n 2 "
      "--oversubscribe --bind-to none " +
      test_program().string();
  for (const std::string& word : ranked("run", {})) words += " " + word;
  ASSERT_EQ(std::system((words + " >" + path("out") + " 2>&1").c_str()), 0)
      << read_file(path("out"));
  ASSERT_EQ(run_ranks("threads", {"-n", "2"}).exit_code, 0);
  EXPECT_EQ(weights("run"), weights("threads"));
}

// MPICH's launcher: its PMI tells the ranks where they meet, and they need no MPI.
TEST_F(Ranks, ThatMpichStartsHaveTheSameBits) {
  if (std::system("command -v mpiexec.hydra >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "MPICH is not installed";
  }
  const Finished one = run_ranks("one", e2e::exact({}, 3));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  for (const char* backend : {"gloo", "tcp"}) {
    std::string line = "mpiexec.hydra -n 3 '" + test_program().string() + "'";
    for (const std::string& word :
         ranked(backend, e2e::exact({fmt::format("--backend={}", backend)}, 3))) {
      line += " '" + word + "'";
    }
    ASSERT_EQ(std::system((line + " >'" + path("said") + "' 2>&1 </dev/null").c_str()), 0)
        << read_file(path("said"));
    EXPECT_EQ(weights(backend, 3), weights("one", 3)) << backend;
  }
}

}  // namespace
}  // namespace atl
