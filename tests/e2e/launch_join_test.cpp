// Agents of `atoll launch --join`: what they add to a run, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/comm/rendezvous/rendezvous.h"
#include "launch_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Joining;
using e2e::Program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(Joining, WhoJoinsInTheMiddleOfARunCostsNoBit) {
  Program launch(open_launch("run", {"--slots=1", "--max-ranks=3"}));
  const std::string address = address_of(launch);
  ASSERT_TRUE(took("run", 20));
  Program beta(agent("run", address, {"--slots=2", "--name=beta"}));
  ASSERT_TRUE(regrouped("run", 3)) << launch.errors() << beta.errors();
  ASSERT_TRUE(took("run", records("run").back().step + 20));

  // Others are refused at once, by a line that says why, and disturb nobody.
  const Finished other = atoll(agent("run", address, {"--slots=1", "--optim.weight_decay=0.5"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(error_line(other), HasSubstr("has `optim.weight_decay = 0.5`"));
  const Finished twin = atoll(agent("run", address, {"--slots=1", "--name=beta"}));
  EXPECT_EQ(twin.exit_code, 2);
  EXPECT_THAT(error_line(twin), HasSubstr("there is an agent called beta already"));

  const Finished finished = stop(launch);
  const Finished left = beta.wait();
  EXPECT_EQ(left.exit_code, 143) << left.err;
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("info: beta offers ranks"),
                    HasSubstr("starting 2 ranks to join the 1 that train"),
                    HasSubstr("warning: an agent was not taken: "), Not(HasSubstr("error"))));
  EXPECT_THAT(left.err, HasSubstr("offering 2 ranks to the launch at " + address + " as beta"));
  EXPECT_THAT(processes(), IsEmpty());
  expect_undisturbed("run");
}

TEST_F(Joining, WhereNoLaunchIsIsNamed) {
  const std::vector<std::string> hasty = {"--slots=1", "--comm.timeout_s=0.3"};
  const Finished nobody = atoll(agent("run", "127.0.0.1:1", hasty));
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(error_line(nobody), HasSubstr("127.0.0.1:1: Connection refused"));
  // What serves only the ranks of another command.
  const comm::RendezvousServer server("127.0.0.1", 0);
  const Finished other = atoll(agent("run", server.address(), hasty));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(error_line(other), HasSubstr("what answers there takes no ranks"));
  const Finished empty = atoll(agent("run", "file://" + path("meeting"), hasty));
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(error_line(empty), HasSubstr("no launch has left its address there"));
}

TEST_F(Joining, WhatCannotBeIsOneLine) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& words) {
    const Finished finished = atoll(launch("run", more));
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_THAT(error_line(finished), HasSubstr(words));
  };
  refused({"--join=127.0.0.1:1"}, "--slots=N");
  refused({"--join=127.0.0.1", "--slots=1"}, "--join=127.0.0.1: give HOST:PORT");
  refused({"--join=127.0.0.1:1", "--slots=1", "--min-ranks=2"}, "--min-ranks");
  refused({"--join=127.0.0.1:1", "--slots=1", "--name=-x"}, "--name=-x");
  refused({"--slots=2", "--max-ranks=4"}, "nobody can join");
  refused({"--slots=-1", "--max-ranks=4"}, "--slots=-1");
  refused({"--max-ranks=4", "--rendezvous=tcp://0.0.0.0:0"}, "by which other machines reach");
  refused({"--max-ranks=4", "--backend=mpi", "--rendezvous=tcp://127.0.0.1:0"}, "--rendezvous");
  refused({"--max-ranks=4", "--backend=threads"}, "use gloo, tcp or mpi");
}

}  // namespace
}  // namespace atl
