// A rank that hangs: it neither ends nor answers.

#include "ranks_fixture.h"

namespace atl {
namespace {

using e2e::Finished;
using e2e::Program;
using e2e::Ranks;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(Ranks, AStoppedOneIsNamedWithTheCallThatItMisses) {
  for (const std::string backend : {"gloo", "mpi"}) {
    if (backend == "mpi" && !e2e::has_mpirun()) continue;
    Program parent(ranked(backend, {"-n", "2", "--backend=" + backend, "--train.steps=10000000",
                                    "--log.every=1", "--optim.lr=1e-6", "--comm.timeout_s=1"}));
    ASSERT_TRUE(trains_soon(backend));
    const pid_t victim = process_of(1);
    ASSERT_NE(victim, 0);
    ::kill(victim, SIGSTOP);
    const Finished finished = parent.wait();
    EXPECT_EQ(finished.exit_code, 1);
    // Operation, number, group, shape, place, who.
    EXPECT_THAT(
        finished.err,
        AllOf(HasSubstr("error: rank 0: all_"), HasSubstr(" #"), HasSubstr(" of "),
              HasSubstr(", f"), HasSubstr(".cpp:"),
              HasSubstr(fmt::format("rank 1 (pid {})", victim)), HasSubstr("after 1 s"),
              HasSubstr("the last calls of rank 0 are in " + path(backend) + "/flight-rank0.txt")));
    const std::string record = read_file(root_.path / backend / "flight-rank0.txt");
    EXPECT_THAT(record, AllOf(HasSubstr("rank 0 of 2 (" + backend + ")"),
                              HasSubstr(": failed after "), HasSubstr(": done in ")));
    EXPECT_TRUE(soon([&] { return processes().empty(); }));
  }
}

}  // namespace
}  // namespace atl
