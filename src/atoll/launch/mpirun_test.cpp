#include "atoll/launch/mpirun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/launch/hosts.h"

namespace atl::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

TEST(Mpirun, OneHostMayHaveMoreRanksThanCores) {
  const auto command = mpirun_command({.ranks = 4, .is_root = true}, {"atoll", "train", "r.toml"});
  EXPECT_THAT(std::vector(command.begin(), command.begin() + 3), ElementsAre("mpirun", "-n", "4"));
  EXPECT_THAT(command, Contains("--oversubscribe"));
  EXPECT_THAT(command, Contains("--allow-run-as-root"));
  EXPECT_THAT(command, Contains("oob_tcp_if_include")) << "only this host may find it";
  EXPECT_THAT(std::vector(command.end() - 3, command.end()),
              ElementsAre("atoll", "train", "r.toml"));
}

TEST(Mpirun, HostsDecideWhereRanksGo) {
  const auto command =
      mpirun_command({.ranks = 4, .hosts = {{.name = "a", .slots = 3}, {.name = "b"}}}, {"atoll"});
  EXPECT_THAT(command, Contains("a:3,b:1"));
  EXPECT_THAT(command, Not(Contains("--oversubscribe")));
  EXPECT_THAT(command, Not(Contains("oob_tcp_if_include"))) << "the others are to reach it";
  EXPECT_THAT(command, Not(Contains("--allow-run-as-root")));
}

TEST(Mpirun, ItsRemarksAreTakenOutAndTheDeadRankIsFound) {
  MpirunMessages messages;
  const std::string ruler(74, '-');
  EXPECT_FALSE(messages.takes("warning: a rank's own line"));
  EXPECT_TRUE(messages.takes("mpirun: Forwarding signal 10 to job"));
  EXPECT_TRUE(messages.takes(ruler));
  EXPECT_TRUE(messages.takes("mpirun noticed that process rank 2 with PID 4711 on node " +
                             this_host() + " exited on signal 9"));
  EXPECT_TRUE(messages.takes("(Killed)."));
  EXPECT_TRUE(messages.takes(ruler));
  EXPECT_FALSE(messages.takes("info: and another"));
  ASSERT_TRUE(messages.dead_rank());
  EXPECT_EQ(messages.dead_rank()->rank, 2);
  EXPECT_EQ(messages.dead_rank()->pid, 4711);
  EXPECT_EQ(messages.dead_rank()->signal, 9);
  EXPECT_EQ(messages.dead_rank()->host, "");
}

TEST(Mpirun, OtherRemarksAreKeptAsWords) {
  MpirunMessages messages;
  const std::string ruler(60, '-');
  messages.takes(ruler);
  messages.takes("There are not enough slots");
  messages.takes("");
  messages.takes("for this.");
  messages.takes(ruler);
  EXPECT_FALSE(messages.dead_rank());
  EXPECT_EQ(messages.text(), "There are not enough slots for this.");
}

}  // namespace
}  // namespace atl::launch
