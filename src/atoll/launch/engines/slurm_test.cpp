#include "atoll/launch/engines/slurm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "atoll/base/error.h"
#include "atoll/launch/ranks.h"

namespace atl::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs `body` in a child that leads a session with a terminal, as srun's task with --pty does.
template <typename Body>
int with_terminal(Body body) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(terminal);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The same in a process of that child, in its group or in one of its own as a shell with job
// control makes them.
template <typename Body>
int called_there(bool has_own_group, Body body) {
  return with_terminal([&] {
    const pid_t child = ::fork();
    if (child == 0) {
      if (has_own_group) ::setpgid(0, 0);
      ::_exit(body());
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  });
}

class SlurmTask : public ::testing::Test {
 protected:
  SlurmTask() {
    for (const auto& [name, value] : kTask) ::setenv(name, value, 1);
  }
  ~SlurmTask() override {
    for (const auto& [name, value] : kTask) ::unsetenv(name);
  }
  static int plans_alone() {
    return plan_ranks({}, rank_environment()).role == Role::kAlone ? 1 : 0;
  }
  static constexpr std::pair<const char*, const char*> kTask[] = {
      {"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"},      {"SLURM_PROCID", "0"},
      {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PTY_PORT", "40000"}, {"SLURM_STEP_NODELIST", "n1"}};
};

TEST_F(SlurmTask, AShellOfATaskIsNone) {
  EXPECT_EQ(called_there(/*has_own_group=*/true, plans_alone), 1);
  EXPECT_EQ(called_there(/*has_own_group=*/true,
                         [] {
                           const std::string advice = slurm_advice(rank_environment());
                           return advice.find("4 tasks (SLURM_NTASKS)") != advice.npos ? 1 : 0;
                         }),
            1);
}

TEST_F(SlurmTask, WhatSrunHasStartedIsOne) {
  EXPECT_EQ(with_terminal(plans_alone), 0) << "srun --pty atoll train";
  EXPECT_EQ(called_there(/*has_own_group=*/false, plans_alone), 0) << "a script";
  ::unsetenv("SLURM_PTY_PORT");
  EXPECT_EQ(called_there(/*has_own_group=*/true, plans_alone), 0) << "srun without --pty";
}

TEST(SlurmAdvice, IsForAJobOfSeveralTasksOrNodesWhoseStepThisIsNot) {
  EXPECT_EQ(slurm_advice({}), "");
  EXPECT_EQ(slurm_advice({{"SLURM_JOB_ID", "7"}}), "");
  EXPECT_EQ(
      slurm_advice({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_NUM_NODES", "1"}}),
      "");
  EXPECT_THAT(
      slurm_advice({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NUM_NODES", "2"}}),
      AllOf(HasSubstr("4 tasks (SLURM_NTASKS) on 2 nodes (SLURM_JOB_NUM_NODES)"),
            HasSubstr("srun atoll train")));
  EXPECT_THAT(slurm_advice({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "2"}}),
              HasSubstr("has 2 nodes"));
  EXPECT_EQ(slurm_advice({{"SLURM_JOB_ID", "7"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "2"}}),
            "");
}

TEST(SlurmHosts, TheFirstOfAList) {
  EXPECT_EQ(first_slurm_host("alpha"), "alpha");
  EXPECT_EQ(first_slurm_host("alpha,beta"), "alpha");
  EXPECT_EQ(first_slurm_host("n[01-04,07]"), "n01");
  EXPECT_EQ(first_slurm_host("n[7,9],m3"), "n7");
  EXPECT_EQ(first_slurm_host("n[007]-ib,m"), "n007-ib");
  for (const char* bad : {"", ",x", "n[", "n[]", "n[1-3", "n[,2]", "a[1-2]b[3-4]"}) {
    EXPECT_THROW(first_slurm_host(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace atl::launch
