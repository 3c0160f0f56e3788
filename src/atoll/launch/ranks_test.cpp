#include "atoll/launch/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RankPlan plan(const RankFlags& flags, const Environment& environment = {}) {
  return plan_ranks(flags, environment);
}

std::string refusal(const RankFlags& flags, const Environment& environment = {}) {
  try {
    plan_ranks(flags, environment);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUser);
    return error.what();
  }
  return "(not refused)";
}

const Environment kMpirun = {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
const Environment kSrun = {{"SLURM_PROCID", "1"},
                           {"SLURM_NTASKS", "4"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_JOB_ID", "1234"},
                           {"SLURM_JOB_NODELIST", "node[07-09,12]"}};

TEST(PlanRanks, NothingSaidIsOneRank) {
  EXPECT_EQ(plan({}).role, Role::kAlone);
  EXPECT_EQ(plan({}).ranks, 1);
  for (const char* backend : {"threads", "mpi", "gloo"}) {
    EXPECT_EQ(plan({.num_ranks = 1, .backend = backend}).role, Role::kAlone) << backend;
  }
}

TEST(PlanRanks, ANumberIsThreadsUnlessABackendIsNamed) {
  const RankPlan threads = plan({.num_ranks = 4});
  EXPECT_EQ(threads.role, Role::kThreads);
  EXPECT_EQ(threads.backend, "threads");
  EXPECT_EQ(threads.ranks, 4);
  for (const char* backend : {"mpi", "gloo", "tcp"}) {
    const RankPlan parent = plan({.num_ranks = 4, .backend = backend});
    EXPECT_EQ(parent.role, Role::kParent);
    EXPECT_EQ(parent.backend, backend);
    EXPECT_EQ(parent.ranks, 4);
  }
}

TEST(PlanRanks, AHostfileIsGlooWithAllItsSlots) {
  const RankPlan all = plan({.hostfile = "hosts"});
  EXPECT_EQ(all.role, Role::kParent);
  EXPECT_EQ(all.backend, "gloo");
  EXPECT_EQ(all.ranks, 0);
  EXPECT_EQ(plan({.num_ranks = 3, .hostfile = "hosts"}).ranks, 3);
  EXPECT_EQ(plan({.num_ranks = 1, .hostfile = "hosts"}).role, Role::kParent);
  EXPECT_EQ(plan({.backend = "mpi", .hostfile = "hosts"}).backend, "mpi");
  EXPECT_THAT(refusal({.num_ranks = 2, .backend = "threads", .hostfile = "hosts"}),
              HasSubstr("--hostfile"));
}

TEST(PlanRanks, ByHandNeedsRankRanksAndAddress) {
  const RankPlan process = plan({.rank = 1, .ranks = 2, .rendezvous = "tcp://a:7000"});
  EXPECT_EQ(process.role, Role::kRank);
  EXPECT_EQ(process.backend, "gloo");
  EXPECT_EQ(process.rank, 1);
  EXPECT_EQ(process.ranks, 2);
  EXPECT_EQ(process.rendezvous, "tcp://a:7000");
  EXPECT_EQ(plan({.rank = 0, .ranks = 2, .rendezvous = "file:///d"}).rendezvous, "file:///d");
  EXPECT_EQ(plan({.rank = 0, .ranks = 1}).role, Role::kAlone);
  EXPECT_EQ(plan({.backend = "tcp", .rank = 1, .ranks = 2, .rendezvous = "tcp://a:7"}).backend,
            "tcp");

  EXPECT_THAT(refusal({.rank = 1, .rendezvous = "tcp://a:7000"}), HasSubstr("--ranks"));
  EXPECT_THAT(refusal({.rank = 1, .ranks = 2}), HasSubstr("--rendezvous"));
  EXPECT_THAT(refusal({.ranks = 2}), HasSubstr("-n 2"));
  EXPECT_THAT(refusal({.rank = 2, .ranks = 2, .rendezvous = "tcp://a:7000"}),
              HasSubstr("from 0 to 1"));
  EXPECT_THAT(refusal({.rank = -1, .ranks = 2, .rendezvous = "tcp://a:7000"}),
              HasSubstr("--rank -1"));
  EXPECT_THAT(refusal({.num_ranks = 2, .rank = 1, .ranks = 2, .rendezvous = "tcp://a:7000"}),
              AllOf(HasSubstr("-n 2"), HasSubstr("--rank 1")));
  EXPECT_THAT(refusal({.backend = "mpi", .rank = 1, .ranks = 2, .rendezvous = "tcp://a:7000"}),
              HasSubstr("mpirun"));
  EXPECT_THAT(refusal({.hostfile = "h", .rank = 1, .ranks = 2, .rendezvous = "tcp://a:7000"}),
              HasSubstr("--hostfile"));
}

TEST(PlanRanks, NumbersAndNamesThatCannotBe) {
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{-3}, std::int64_t{1} << 40}) {
    EXPECT_THAT(refusal({.num_ranks = count}), HasSubstr(fmt::format("-n {}", count)));
  }
  EXPECT_THAT(refusal({.rank = 0, .ranks = 0}), HasSubstr("--ranks 0"));
  EXPECT_EQ(refusal({.num_ranks = 2, .backend = "gluu"}),
            "--backend=gluu: there is no such backend; did you mean gloo?");
  EXPECT_THAT(refusal({.backend = "carrier-pigeon"}), HasSubstr("threads, mpi, gloo and tcp"));
}

TEST(PlanRanks, AddressesAreChecked) {
  for (const char* address :
       {"host:80", "tcp://", "tcp://:80", "tcp://host", "tcp://host:", "tcp://host:x",
        "tcp://host:65536", "tcp://host:-1", "udp://h:1", "file://relative", "file:///"}) {
    EXPECT_THAT(refusal({.rank = 0, .ranks = 2, .rendezvous = address}), HasSubstr(address));
  }
  EXPECT_EQ(plan({.rank = 0, .ranks = 2, .rendezvous = "tcp://[::1]:80"}).rendezvous,
            "tcp://[::1]:80");
  EXPECT_EQ(plan({.num_ranks = 2, .backend = "gloo", .rendezvous = "tcp://h:0"}).rendezvous,
            "tcp://h:0");
  EXPECT_THAT(refusal({.num_ranks = 2, .backend = "gloo", .rendezvous = "file:///d"}),
              HasSubstr("serves"));
  EXPECT_THAT(refusal({.num_ranks = 2, .rendezvous = "tcp://h:1"}), HasSubstr("threads"));
}

TEST(PlanRanks, MpirunSaysWhichRankThisIs) {
  const RankPlan process = plan({}, kMpirun);
  EXPECT_EQ(process.role, Role::kRank);
  EXPECT_EQ(process.backend, "mpi");
  EXPECT_EQ(process.rank, 2);
  EXPECT_EQ(process.ranks, 4);
  EXPECT_EQ(process.origin, "OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(plan({.num_ranks = 4, .backend = "mpi"}, kMpirun).rank, 2);
  EXPECT_EQ(plan({.backend = "gloo", .rendezvous = "file:///d"}, kMpirun).backend, "gloo");
}

TEST(PlanRanks, WhatContradictsMpirunIsNamed) {
  EXPECT_THAT(refusal({.num_ranks = 2}, kMpirun),
              AllOf(HasSubstr("-n 2"), HasSubstr("OMPI_COMM_WORLD_SIZE=4")));
  EXPECT_THAT(refusal({.rank = 1, .ranks = 4}, kMpirun),
              AllOf(HasSubstr("--rank 1"), HasSubstr("OMPI_COMM_WORLD_RANK=2")));
  EXPECT_THAT(refusal({.ranks = 3}, kMpirun), HasSubstr("--ranks 3"));
  EXPECT_THAT(refusal({.backend = "threads"}, kMpirun), HasSubstr("--backend=mpi"));
  EXPECT_THAT(refusal({.backend = "gloo"}, kMpirun), HasSubstr("--rendezvous"));
  EXPECT_THAT(refusal({.rendezvous = "tcp://a:1"}, kMpirun), HasSubstr("--backend=gloo"));
  EXPECT_THAT(refusal({.hostfile = "h"}, kMpirun), HasSubstr("--hostfile"));
}

TEST(PlanRanks, ABrokenEnvironmentIsNamed) {
  EXPECT_THAT(refusal({}, {{"OMPI_COMM_WORLD_RANK", "2"}}), HasSubstr("OMPI_COMM_WORLD_SIZE"));
  EXPECT_THAT(refusal({}, {{"OMPI_COMM_WORLD_SIZE", "2"}}), HasSubstr("OMPI_COMM_WORLD_RANK"));
  for (const char* bad : {"", "x", "-1", "1x", "99999999999"}) {
    EXPECT_THAT(refusal({}, {{"PMI_RANK", bad}, {"PMI_SIZE", "2"}}),
                AllOf(HasSubstr("PMI_RANK"), HasSubstr(fmt::format("'{}'", bad))));
  }
  EXPECT_THAT(refusal({}, {{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), HasSubstr("rank 2"));
}

TEST(PlanRanks, APmiMeansMpi) {
  const RankPlan pmi = plan({}, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(pmi.backend, "mpi");
  EXPECT_EQ(pmi.ranks, 2);
  Environment srun = kSrun;
  srun["PMIX_RANK"] = "3";
  const RankPlan pmix = plan({}, srun);
  EXPECT_EQ(pmix.backend, "mpi");
  EXPECT_EQ(pmix.rank, 3);
  EXPECT_EQ(pmix.ranks, 4);
  EXPECT_EQ(plan({}, {{"PMIX_RANK", "3"}}).ranks, 0) << "MPI knows";
}

// Ours may not know that PMI, and would take each rank for the only one.
TEST(PlanRanks, APmiOfAnotherMpiMeansGloo) {
  const Environment mpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "6"}};
  EXPECT_EQ(plan({}, mpich).backend, "gloo");
  EXPECT_EQ(plan({}, mpich).rendezvous, kPmiRendezvous);
  EXPECT_EQ(plan({.rendezvous = "tcp://x:5"}, mpich).rendezvous, "tcp://x:5");
  EXPECT_EQ(plan({.backend = "mpi"}, mpich).backend, "mpi");
  Environment pmi2 = kSrun;
  pmi2.insert({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_FD", "6"}});
  EXPECT_EQ(plan({}, pmi2).backend, "gloo");
  EXPECT_EQ(plan({}, pmi2).rendezvous, plan({}, kSrun).rendezvous);
}

TEST(PlanRanks, SrunWithoutAPmiIsGlooWithTheFirstNodeAsRendezvous) {
  const RankPlan process = plan({}, kSrun);
  EXPECT_EQ(process.role, Role::kRank);
  EXPECT_EQ(process.backend, "gloo");
  EXPECT_EQ(process.rank, 1);
  EXPECT_EQ(process.ranks, 4);
  EXPECT_THAT(process.rendezvous, ::testing::StartsWith("tcp://node07:2"));
  Environment other = kSrun;
  other["SLURM_PROCID"] = "3";
  EXPECT_EQ(plan({}, other).rendezvous, process.rendezvous) << "all tasks meet";
  other["SLURM_STEP_ID"] = "1";
  EXPECT_NE(plan({}, other).rendezvous, process.rendezvous) << "two steps do not";
  EXPECT_EQ(plan({.rendezvous = "tcp://x:5"}, kSrun).rendezvous, "tcp://x:5");
  EXPECT_THAT(refusal({.backend = "mpi"}, kSrun), HasSubstr("--mpi=pmix"));
  other.erase("SLURM_JOB_NODELIST");
  EXPECT_THAT(refusal({}, other), HasSubstr("SLURM_JOB_NODELIST"));
}

TEST(PlanRanks, SrunWithAPmiTakesGlooToo) {
  for (const char* rank : {"PMI_RANK", "PMIX_RANK"}) {
    Environment srun = kSrun;
    srun[rank] = "1";
    if (std::string(rank) == "PMI_RANK") srun["PMI_SIZE"] = "4";
    const RankPlan process = plan({.backend = "gloo"}, srun);
    EXPECT_EQ(process.backend, "gloo");
    EXPECT_EQ(process.rendezvous, plan({}, kSrun).rendezvous);
  }
}

TEST(PlanRanks, ABatchScriptIsNoRank) {
  Environment batch = kSrun;
  batch.erase("SLURM_STEP_ID");
  batch["SLURM_PROCID"] = "0";
  EXPECT_EQ(plan({}, batch).role, Role::kAlone);
  EXPECT_EQ(plan({.num_ranks = 2}, batch).role, Role::kThreads);
}

TEST(PlanRanks, AnInnerLauncherComesBeforeAnOuter) {
  Environment both = kSrun;
  both.insert(kMpirun.begin(), kMpirun.end());
  EXPECT_EQ(plan({}, both).rank, 2);
  EXPECT_EQ(plan({}, both).backend, "mpi");
}

TEST(PlanRanks, ALauncherOfOneRankIsNone) {
  const Environment one = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}};
  EXPECT_EQ(plan({}, one).role, Role::kAlone);
  EXPECT_EQ(plan({.num_ranks = 3}, one).role, Role::kThreads);
}

}  // namespace
}  // namespace atl::launch
