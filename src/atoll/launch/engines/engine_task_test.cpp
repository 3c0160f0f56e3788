#include "atoll/launch/engines/engine_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "atoll/base/error.h"
#include "atoll/launch/hosts.h"
#include "atoll/launch/ranks.h"

namespace atl::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(const RankPlan& plan) {
  switch (plan.role) {
    case Role::kAlone:
      return "alone";
    case Role::kThreads:
      return fmt::format("{} threads", plan.ranks);
    case Role::kRank:
      return fmt::format("rank {} of {} at {}", plan.rank, plan.ranks, plan.rendezvous);
    case Role::kParent:
      return fmt::format("ranks {} to {} of {} at {}", plan.rank, plan.rank + plan.here - 1,
                         plan.ranks, plan.rendezvous);
  }
  return "";
}

// What the process is that has these variables; or why it is refused.
std::string planned(const Environment& environment, const RankFlags& flags = {}) {
  const std::optional<EngineTask> task = engine_task(environment, flags.ranks.has_value());
  if (!task) return "(none)";
  try {
    return text_of(plan_engine_task(flags, *task));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
}

const Environment kTorchrun = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29400"}};
const Environment kPods = {{"LWS_WORKER_INDEX", "1"},
                           {"LWS_GROUP_SIZE", "2"},
                           {"LWS_LEADER_ADDRESS", "lws-0.lws.default"}};

TEST(EngineTask, OfTorchrunIsARank) {
  EXPECT_EQ(planned(kTorchrun), "rank 1 of 4 at tcp://10.0.0.1:29400");
  EXPECT_EQ(engine_task(kTorchrun)->variables, "RANK=1, WORLD_SIZE=4, MASTER_ADDR=10.0.0.1");
  Environment elastic = kTorchrun;
  elastic["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(planned(elastic), "rank 1 of 4 at tcp://10.0.0.1:29401") << "its store has the port";
  EXPECT_TRUE(engine_task(elastic)->is_innermost);
  EXPECT_FALSE(engine_task(kTorchrun)->is_innermost);
}

TEST(EngineTask, OfAMachineIsAsManyRanksAsAreAskedFor) {
  const Environment trainer = {{"PET_NODE_RANK", "2"},
                               {"PET_NNODES", "1:3"},
                               {"PET_MASTER_ADDR", "job-node-0-0.job"},
                               {"PET_MASTER_PORT", "29500"}};
  EXPECT_EQ(planned(trainer), "rank 2 of 3 at tcp://job-node-0-0.job:29500");
  EXPECT_EQ(planned(trainer, {.num_ranks = 1}), planned(trainer));
  EXPECT_EQ(planned(trainer, {.num_ranks = 4}),
            "ranks 8 to 11 of 12 at tcp://job-node-0-0.job:29500");
  Environment two = trainer;
  two["PET_NPROC_PER_NODE"] = "2";
  EXPECT_EQ(planned(two), "ranks 4 to 5 of 6 at tcp://job-node-0-0.job:29500");
  EXPECT_EQ(planned(two, {.num_ranks = 1}), planned(trainer)) << "a flag comes first";
  two["PET_NPROC_PER_NODE"] = "auto";
  EXPECT_EQ(planned(two), planned(trainer));
  two["PET_NNODES"] = "1";
  two["PET_NODE_RANK"] = "0";
  EXPECT_EQ(planned(two), "(none)");
  two["PET_NPROC_PER_NODE"] = "2";
  EXPECT_EQ(planned(two), "2 threads");
}

TEST(EngineTask, IsKnownOfEachEngine) {
  EXPECT_EQ(planned(kPods), "rank 1 of 2 at tcp://lws-0.lws.default:29500");
  EXPECT_EQ(planned({{"SKYPILOT_NODE_RANK", "1"},
                     {"SKYPILOT_NUM_NODES", "2"},
                     {"SKYPILOT_NODE_IPS", "10.1.0.4\n10.1.0.5"},
                     {"SKYPILOT_NUM_GPUS_PER_NODE", "8"}}),
            "ranks 8 to 15 of 16 at tcp://10.1.0.4:29500");
  EXPECT_EQ(planned({{"DSTACK_NODE_RANK", "0"},
                     {"DSTACK_NODES_NUM", "2"},
                     {"DSTACK_MASTER_NODE_IP", "fd00::1"},
                     {"DSTACK_GPUS_PER_NODE", "0"}}),
            "rank 0 of 2 at tcp://[fd00::1]:29500");
  EXPECT_EQ(planned({{"AWS_BATCH_JOB_NODE_INDEX", "3"},
                     {"AWS_BATCH_JOB_NUM_NODES", "4"},
                     {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "172.31.0.9"}}),
            "rank 3 of 4 at tcp://172.31.0.9:29500");
  // Its main node is not told an address: it is its own.
  EXPECT_EQ(planned({{"AWS_BATCH_JOB_NODE_INDEX", "0"}, {"AWS_BATCH_JOB_NUM_NODES", "4"}}),
            fmt::format("rank 0 of 4 at tcp://{}:29500", this_host()));
  EXPECT_THAT(planned({{"AWS_BATCH_JOB_NODE_INDEX", "1"}, {"AWS_BATCH_JOB_NUM_NODES", "4"}}),
              AllOf(HasSubstr("AWS Batch"), HasSubstr("--rendezvous=tcp://HOST:PORT")));
}

TEST(EngineTask, OfAnIndexedJobNeedsACount) {
  const Environment pod = {{"JOB_COMPLETION_INDEX", "2"}, {"(host)", "train-2.train.ns.svc"}};
  EXPECT_THAT(planned(pod), AllOf(HasSubstr("a Kubernetes Job has started this beside others "
                                            "(JOB_COMPLETION_INDEX=2)"),
                                  HasSubstr("--ranks=N")));
  EXPECT_EQ(planned(pod, {.ranks = 4}), "rank 2 of 4 at tcp://train-0.train.ns.svc:29500");
  EXPECT_EQ(planned(pod, {.num_ranks = 2, .ranks = 8}),
            "ranks 4 to 5 of 8 at tcp://train-0.train.ns.svc:29500");
  EXPECT_THAT(planned(pod, {.num_ranks = 2, .ranks = 7}), HasSubstr("no multiple of -n 2"));
  EXPECT_THAT(planned(pod, {.ranks = 2}), HasSubstr("one too many for 2 ranks"));
  EXPECT_EQ(planned(pod, {.ranks = 4, .rendezvous = "tcp://a:1"}), "rank 2 of 4 at tcp://a:1");
  EXPECT_THAT(planned({{"JOB_COMPLETION_INDEX", "2"}, {"(host)", "elsewhere"}}, {.ranks = 4}),
              HasSubstr("does not tell where the first one is"));
  const Environment first = {{"JOB_COMPLETION_INDEX", "0"}, {"(host)", "train-0.train.ns.svc"}};
  EXPECT_EQ(planned(first), "(none)") << "it may be the only one";
  EXPECT_EQ(planned(first, {.ranks = 4}), "rank 0 of 4 at tcp://train-0.train.ns.svc:29500");
}

TEST(EngineTask, OfTheFirstPodMeetsWhereOthersReachIt) {
  Environment first = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "23456"}};
  EXPECT_EQ(planned(first), "rank 0 of 2 at tcp://localhost:23456") << "torchrun on one machine";
  first["KUBERNETES_SERVICE_HOST"] = "10.96.0.1";
  EXPECT_EQ(planned(first), fmt::format("rank 0 of 2 at tcp://{}:23456", this_host()));
  first["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_EQ(planned(first), "rank 0 of 2 at tcp://localhost:23456") << "torchrun in one pod";
}

TEST(EngineTask, IsThatOfTheInnermostEngine) {
  Environment both = kTorchrun;
  both["JOB_COMPLETION_INDEX"] = "3";
  EXPECT_EQ(engine_task(both)->engine, "torchrun");
}

TEST(EngineTask, OfOneProcessIsNone) {
  const Environment alone[] = {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "localhost"}},
                               {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"JOB_COMPLETION_INDEX", "3"}},
                               {{"PET_NODE_RANK", "0"}, {"PET_NNODES", "1"}},
                               {{"LWS_WORKER_INDEX", "0"}, {"LWS_GROUP_SIZE", "1"}},
                               {{"SKYPILOT_NODE_RANK", "0"},
                                {"SKYPILOT_NUM_NODES", "1"},
                                {"SKYPILOT_NUM_GPUS_PER_NODE", "8"}},
                               {{"JOB_COMPLETION_INDEX", "0"}},
                               {{"MASTER_ADDR", "10.0.0.1"}, {"WORLD_SIZE", "4"}},
                               {{"RANK", "first"}, {"WORLD_SIZE", "4"}},
                               {{"RANK", ""}, {"WORLD_SIZE", ""}},
                               {}};
  for (const Environment& environment : alone) EXPECT_EQ(planned(environment), "(none)");
}

TEST(EngineTask, RefusesFlagsThatContradictIt) {
  EXPECT_THAT(planned(kTorchrun, {.num_ranks = 2}),
              AllOf(HasSubstr("-n 2, but torchrun has started this beside others"),
                    HasSubstr("--rank=0 --ranks=1")));
  EXPECT_EQ(planned(kTorchrun, {.num_ranks = 4}), planned(kTorchrun));
  EXPECT_THAT(planned(kTorchrun, {.ranks = 3}), HasSubstr("4 ranks; leave --ranks out"));
  EXPECT_THAT(planned(kPods, {.backend = "threads"}), HasSubstr("makes ranks in one process"));
  EXPECT_THAT(planned(kPods, {.backend = "mpi"}), HasSubstr("needs mpirun"));
  EXPECT_THAT(planned(kPods, {.num_ranks = 2, .rendezvous = "file:///tmp/x"}),
              HasSubstr("give tcp://HOST:PORT"));
  Environment late = kPods;
  late["LWS_WORKER_INDEX"] = "2";
  EXPECT_THAT(planned(late), HasSubstr("one too many for 2 ranks"));
}

TEST(EngineTask, OfALaunchIsTheLaunchOrJoinsIt) {
  const std::optional<LaunchTask> second = launch_task({}, kPods);
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->is_first);
  EXPECT_EQ(second->engine, "LeaderWorkerSet");
  EXPECT_EQ(second->rendezvous, "tcp://lws-0.lws.default:29500");
  EXPECT_EQ(second->num_tasks, 2);
  EXPECT_EQ(second->slots, 1);
  Environment leader = kPods;
  leader["LWS_WORKER_INDEX"] = "0";
  EXPECT_TRUE(launch_task({}, leader)->is_first);
  EXPECT_EQ(launch_task({}, {}), std::nullopt);
  try {
    launch_task({}, kTorchrun);
    FAIL() << "it was not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("`atoll launch` starts ranks itself"));
  }
}

TEST(Hosts, WaitingForOneThatNobodyKnowsEnds) {
  EXPECT_NO_THROW(wait_for_host("localhost", 0));
  try {
    wait_for_host("no-such-host.invalid", 0);
    FAIL() << "it was found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("no-such-host.invalid, where the ranks meet, is not known"));
  }
}

}  // namespace
}  // namespace atl::launch
