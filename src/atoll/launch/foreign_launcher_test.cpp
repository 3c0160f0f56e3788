#include "atoll/launch/foreign_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const RankFlags& flags, const Environment& environment) {
  try {
    refuse_foreign_launcher(flags, environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "(not refused)";
}

std::string flags_of(const Environment& environment) {
  const auto launcher = foreign_launcher(environment);
  return launcher ? launcher->flags : "(none)";
}

const Environment kTorchrun = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29400"}};

TEST(ForeignLauncher, IsRefusedByNameWithTheFlagsOfThisProcess) {
  EXPECT_EQ(refusal({}, kTorchrun),
            "torchrun has started this beside others (RANK=1, WORLD_SIZE=4, "
            "MASTER_ADDR=10.0.0.1), and atoll does not read that yet: each would train a run of "
            "its own; give --rank=1 --ranks=4 --rendezvous=tcp://10.0.0.1:29400, or -n 1 where "
            "that is meant");
  // torchrun's own store has that port.
  Environment elastic = kTorchrun;
  elastic["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(flags_of(elastic), "--rank=1 --ranks=4 --rendezvous=tcp://10.0.0.1:29401");
}

TEST(ForeignLauncher, IsEachOfThoseThatAreKnown) {
  EXPECT_EQ(flags_of({{"PET_NODE_RANK", "2"},
                      {"PET_NNODES", "1:3"},
                      {"PET_MASTER_ADDR", "job-node-0-0.job"},
                      {"PET_MASTER_PORT", "29500"}}),
            "--rank=2 --ranks=3 --rendezvous=tcp://job-node-0-0.job:29500");
  EXPECT_EQ(flags_of({{"LWS_WORKER_INDEX", "1"},
                      {"LWS_GROUP_SIZE", "2"},
                      {"LWS_LEADER_ADDRESS", "lws-0.lws.default"}}),
            "--rank=1 --ranks=2 --rendezvous=tcp://lws-0.lws.default:29500");
  EXPECT_EQ(flags_of({{"SKYPILOT_NODE_RANK", "1"},
                      {"SKYPILOT_NUM_NODES", "2"},
                      {"SKYPILOT_NODE_IPS", "10.1.0.4\n10.1.0.5"}}),
            "--rank=1 --ranks=2 --rendezvous=tcp://10.1.0.4:29500");
  EXPECT_EQ(flags_of({{"DSTACK_NODE_RANK", "0"},
                      {"DSTACK_NODES_NUM", "2"},
                      {"DSTACK_MASTER_NODE_IP", "fd00::1"}}),
            "--rank=0 --ranks=2 --rendezvous=tcp://[fd00::1]:29500");
  EXPECT_EQ(flags_of({{"AWS_BATCH_JOB_NODE_INDEX", "3"},
                      {"AWS_BATCH_JOB_NUM_NODES", "4"},
                      {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "172.31.0.9"}}),
            "--rank=3 --ranks=4 --rendezvous=tcp://172.31.0.9:29500");
  EXPECT_EQ(flags_of({{"JOB_COMPLETION_INDEX", "2"}}),
            "--rank=2 --ranks=N --rendezvous=tcp://HOST:29500");
  // What runs inside another comes first.
  Environment both = kTorchrun;
  both["JOB_COMPLETION_INDEX"] = "3";
  EXPECT_THAT(refusal({}, both), HasSubstr("torchrun"));
}

TEST(ForeignLauncher, OfOneProcessIsNone) {
  const Environment alone[] = {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "localhost"}},
                               {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"JOB_COMPLETION_INDEX", "3"}},
                               {{"PET_NODE_RANK", "0"}, {"PET_NNODES", "1"}},
                               {{"LWS_WORKER_INDEX", "0"}, {"LWS_GROUP_SIZE", "1"}},
                               {{"JOB_COMPLETION_INDEX", "0"}},
                               {{"MASTER_ADDR", "10.0.0.1"}, {"WORLD_SIZE", "4"}},
                               {{"RANK", "first"}, {"WORLD_SIZE", "4"}},
                               {{"RANK", ""}, {"WORLD_SIZE", ""}},
                               {}};
  for (const Environment& environment : alone) {
    EXPECT_EQ(refusal({}, environment), "(not refused)");
  }
}

TEST(ForeignLauncher, IsPassedOverWhereFlagsSayTheRanks) {
  EXPECT_EQ(refusal({.rank = 1, .ranks = 4, .rendezvous = "tcp://a:1"}, kTorchrun),
            "(not refused)");
  EXPECT_EQ(refusal({.num_ranks = 1}, kTorchrun), "(not refused)");
  EXPECT_EQ(refusal({.hostfile = "hosts"}, kTorchrun), "(not refused)");
}

TEST(ForeignLauncher, IsPassedOverWhereMpirunOrSrunSaysTheRanks) {
  Environment mpirun = {{"SKYPILOT_NODE_RANK", "1"}, {"SKYPILOT_NUM_NODES", "2"}};
  EXPECT_THAT(refusal({}, mpirun), HasSubstr("SkyPilot"));
  mpirun.insert({{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "8"}});
  EXPECT_EQ(refusal({}, mpirun), "(not refused)");

  const Environment task = {{"SLURM_PROCID", "1"},
                            {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_JOB_ID", "7"},
                            {"SLURM_STEP_NODELIST", "n[1-4]"}};
  Environment srun = kTorchrun;
  srun.insert(task.begin(), task.end());
  EXPECT_EQ(refusal({}, srun), "(not refused)") << "a script says the same in other words";
  // torchrun in each task: its processes have one SLURM_PROCID.
  srun["RANK"] = "9";
  srun["WORLD_SIZE"] = "32";
  srun["TORCHELASTIC_RUN_ID"] = "7";
  EXPECT_THAT(refusal({}, srun), AllOf(HasSubstr("torchrun"), HasSubstr("--rank=9 --ranks=32")));
}

TEST(ForeignLauncher, OfALaunchIsRefusedUnlessItIsTheFirst) {
  EXPECT_NO_THROW(refuse_foreign_launch({}));
  EXPECT_NO_THROW(
      refuse_foreign_launch({{"SKYPILOT_NODE_RANK", "0"}, {"SKYPILOT_NUM_NODES", "2"}}));
  try {
    refuse_foreign_launch({{"SKYPILOT_NODE_RANK", "1"}, {"SKYPILOT_NUM_NODES", "2"}});
    FAIL() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--join=HOST:PORT"));
  }
}

}  // namespace
}  // namespace atl::launch
