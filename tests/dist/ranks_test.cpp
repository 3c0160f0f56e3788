// Real processes, one a rank, over each backend: what they compute, and what they say when one of
// them dies, stops, or calls something else.

#include "ranks_fixture.h"

namespace atl::dist {
namespace {

using testing::HasSubstr;

class Suite : public Ranks {};
TEST_P(Suite, IsBitwiseTheSerialChain) {
  Island island = start("suite");
  for (const Ended& ended : island.wait()) EXPECT_EQ(ended.exit_code, 0) << ended.output;
}
// Other numbers of ranks, and Gloo without windows, are among the slow tests.
INSTANTIATE_TEST_SUITE_P(Dist, Suite,
                         testing::Values(Case{"mpi", 2}, Case{"mpi-alone", 3}, Case{"gloo", 2},
                                         Case{"tcp", 2}, Case{"tcp-alone", 3}),
                         case_name);

class Channels : public Ranks {};

TEST_P(Channels, DoNotWaitForEachOtherAndAllocateNothing) {
  Island island = start("channels");
  for (const Ended& ended : island.wait()) EXPECT_EQ(ended.exit_code, 0) << ended.output;
}

TEST_P(Channels, EndTogether) {
  Island island = start("failing_channel");
  std::string all;
  for (const Ended& ended : island.wait()) {
    EXPECT_NE(ended.exit_code, 0);
    all += ended.output;
    if (island.mpi()) continue;  // mpirun ends the others as soon as one has said it
    EXPECT_THAT(ended.output, HasSubstr(" of tp, f32 (10)"));
  }
  EXPECT_THAT(all, HasSubstr(" of tp, f32 (10)"));
  EXPECT_THAT(all, testing::Not(HasSubstr("error: ")));
}

TEST_P(Channels, NameAKilledRank) {
  Island island = start("killed_on_channels");
  if (island.mpi()) {  // mpirun ends the others itself, and may be the first
    EXPECT_NE(island.wait_for(0).exit_code, 0);
    return;
  }
  for (const int rank : {0, 2}) {
    const Ended& ended = island.wait_for(rank);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.output, HasSubstr("both the same\npeer 1: ")) << rank;
    EXPECT_THAT(ended.output, HasSubstr("is gone"));
  }
}

INSTANTIATE_TEST_SUITE_P(Dist, Channels,
                         testing::Values(Case{"mpi", 3}, Case{"mpi-alone", 3}, Case{"gloo", 3},
                                         Case{"gloo-tcp", 3}, Case{"tcp", 3}, Case{"tcp-alone", 3}),
                         case_name);

class Faults : public Ranks {};

TEST_P(Faults, AKilledRankIsNamedByAllOthers) {
  Island island = start("killed");
  if (island.mpi()) {  // mpirun ends the others itself, and may be the first
    const Ended& ended = island.wait_for(0);
    EXPECT_NE(ended.exit_code, 0);
    EXPECT_EQ(ended.signal, 0) << "it never ended: " << ended.output;
    return;
  }
  EXPECT_EQ(island.wait_for(1).signal, SIGKILL);
  for (const int rank : {0, 2}) {
    const Ended& ended = island.wait_for(rank);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.output, testing::ContainsRegex("peer 1: (all_reduce|barrier) #")) << rank;
    EXPECT_THAT(ended.output, HasSubstr("is gone"));
  }
}

TEST_P(Faults, AStoppedRankIsNamedAfterTheTimeout) {
  Island island = start("stopped", 1.0);
  for (const int rank : {0, 2}) {
    const Ended& ended = island.wait_for(rank);
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.output, HasSubstr("peer 1: all_reduce #3 of world, f32 (1048576)"));
    if (in_windows()) {
      EXPECT_THAT(ended.output, HasSubstr("its last call was all_reduce #2 of world, f32 (1000)"));
      EXPECT_THAT(ended.output, HasSubstr("the process is stopped"));
    }
  }
}

TEST_P(Faults, AnotherCallIsNamedOnBothSides) {
  Island island = start("mismatched");
  std::string all;
  for (const Ended& ended : island.wait()) {
    EXPECT_NE(ended.exit_code, 0);
    all += ended.output;
  }
  EXPECT_THAT(all, HasSubstr("peer 1: all_reduce #2 of world, f32 (60)"));
  EXPECT_THAT(all, HasSubstr("calls broadcast #2 of world, f32 (60)"));
  // mpirun ends the others as soon as one has said it.
  if (!island.mpi()) {
    EXPECT_THAT(all, testing::ContainsRegex("peer [02]: broadcast #2 of world"));
  }
}

TEST_P(Faults, AMessageOfAnotherSizeIsNamed) {
  Island island = start("wrong_size", 5);
  std::string all;
  for (const Ended& ended : island.wait()) all += ended.output;
  EXPECT_THAT(all, HasSubstr("peer 0: exchange"));
  EXPECT_THAT(all, testing::ContainsRegex("rank 0.* sends (240 bytes where|more than the 160 bytes "
                                          "that) rank 1 expects"));
}

TEST_P(Faults, AnErrorOfOneRankReachesAll) {
  Island island = start("aborted");
  std::string all;
  for (const Ended& ended : island.wait()) {
    EXPECT_NE(ended.exit_code, 0);
    all += ended.output;
  }
  EXPECT_THAT(all, HasSubstr("error: its file is missing"));
  if (!island.mpi()) {
    for (const int rank : {0, 2}) {
      EXPECT_THAT(island.wait_for(rank).output, HasSubstr("peer 1: "));
      EXPECT_THAT(island.wait_for(rank).output, HasSubstr("ended with an error: its file is"));
    }
  }
}

TEST_P(Faults, ARankThatLeavesIsNamed) {
  const std::string backend = GetParam().backend;
  if (backend == "mpi" || backend == "gloo-tcp") GTEST_SKIP() << "it waits there until all leave";
  Island island = start("left", 5);
  for (const int rank : {0, 2}) {
    EXPECT_THAT(island.wait_for(rank).output, HasSubstr("peer 1: "));
    EXPECT_THAT(island.wait_for(rank).output, HasSubstr("has left"));
  }
}

TEST_P(Faults, SurvivorsGatherAgain) {
  if (GetParam().backend == std::string("mpi")) GTEST_SKIP() << "MPI cannot";
  Island island = start("regrouped");
  island.wait();
  EXPECT_EQ(island.wait_for(1).signal, SIGKILL);
  EXPECT_THAT(island.wait_for(0).output, HasSubstr("lost 1\nregrouped 0 of 2"));
  EXPECT_THAT(island.wait_for(2).output, HasSubstr("lost 1\nregrouped 1 of 2"));
}

INSTANTIATE_TEST_SUITE_P(Dist, Faults,
                         testing::Values(Case{"mpi", 3}, Case{"gloo", 3}, Case{"gloo-tcp", 3},
                                         Case{"tcp", 3}, Case{"tcp-alone", 3}),
                         case_name);

}  // namespace
}  // namespace atl::dist
