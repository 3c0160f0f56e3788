// Alerts of ranks and islands that are lost, stopped or slow, and of a disk that fills up: each by
// its real cause.

#include <sys/mount.h>

#include "alerts_fixture.h"

namespace atl {
namespace {

using e2e::Alerts;
using e2e::Finished;
using e2e::Program;
using metrics::AlertKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> endless(std::vector<std::string> more) {
  more.insert(more.end(), {fmt::format("--train.steps={}", e2e::kEndless), "--log.every=1",
                           "--log.tensorboard=false", "--comm.timeout_s=600"});
  return more;
}

TEST_F(Alerts, OfARankThatIsKilledComeFromWhoStartedIt) {
  Program run(ranked("run", endless({"-n2", "--backend=tcp"})));
  ASSERT_TRUE(took("run", 5));
  ASSERT_NE(kill_rank(1), 0);
  const Finished finished = run.wait();
  const auto lost = alerts("run", AlertKind::kRankLost);
  ASSERT_EQ(lost.size(), 1u) << finished.err;
  EXPECT_THAT(lost[0].message, AllOf(HasSubstr("rank 1"), HasSubstr("signal 9")));
  EXPECT_THAT(lost[0].command, HasSubstr("atoll train "));
  EXPECT_GE(lost[0].step, 5);
}

TEST_F(Alerts, OfARankThatWasStartedByHandComeFromAnotherOne) {
  const auto by_hand = [&](int rank) {
    return ranked("run", endless({fmt::format("--rank={}", rank), "--ranks=2", "--backend=tcp",
                                  "--rendezvous=file://" + path("meeting")}));
  };
  Program first(by_hand(0)), second(by_hand(1));
  ASSERT_TRUE(took("run", 5)) << first.errors() << second.errors();
  second.send(SIGKILL);
  const Finished finished = first.wait();
  const auto lost = alerts("run", AlertKind::kRankLost);
  ASSERT_EQ(lost.size(), 1u) << finished.err;
  EXPECT_GE(lost[0].step, 5);
}

TEST_F(Alerts, OfARankThatIsKilledComeFromTheOthersThatGoOn) {
  Program agent(launch("run", endless({"--min-ranks=1", "--max-ranks=2", "--launch.replicate=true",
                                       "--backend=tcp"})));
  ASSERT_TRUE(took("run", 5));
  ASSERT_NE(kill_rank(1), 0);
  EXPECT_TRUE(tells("run", AlertKind::kRankLost)) << agent.errors();
  const auto lost = alerts("run", AlertKind::kRankLost);
  ASSERT_FALSE(lost.empty());
  EXPECT_THAT(lost[0].message, HasSubstr("1 of 2 ranks are left"));
  agent.send(SIGTERM);
  agent.wait();
}

TEST_F(Alerts, OfARankThatStandsStillComeWhileTheOthersWait) {
  Program run(ranked("run", endless({"-n2", "--backend=tcp"})));
  ASSERT_TRUE(took("run", 20));
  const pid_t victim = process_of(1);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGSTOP);
  EXPECT_TRUE(tells("run", AlertKind::kStall)) << run.errors();
  ::kill(victim, SIGCONT);
  run.send(SIGTERM);
  run.wait();
}

TEST_F(Alerts, OfAnIslandThatIsKilledComeFromTheCoordinator) {
  Program run(islanded("run", 2, e2e::kEndless));
  ASSERT_TRUE(soon([&] { return records(within("run", 2)).size() > 5; })) << run.errors();
  const pid_t victim = island(2);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  EXPECT_TRUE(tells("run", AlertKind::kIslandLost)) << run.errors();
  const auto lost = alerts("run", AlertKind::kIslandLost);
  ASSERT_FALSE(lost.empty());
  EXPECT_THAT(lost[0].message, HasSubstr("island-2"));
  EXPECT_THAT(lost[0].command, HasSubstr("atoll runs show "));
  run.send(SIGTERM);
  run.wait();
}

TEST_F(Alerts, OfADiskThatIsSmallComeAtOnce) {
  std::filesystem::create_directories(root_.path / "disk");
  if (::mount("tmpfs", path("disk").c_str(), "tmpfs", 0, "size=30m") != 0) {
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  Program run(ranked("disk/run", endless({})));
  EXPECT_TRUE(tells("disk/run", AlertKind::kDiskLow)) << run.errors();
  run.send(SIGTERM);
  run.wait();
  ::umount2(path("disk").c_str(), MNT_DETACH);
}

}  // namespace
}  // namespace atl
