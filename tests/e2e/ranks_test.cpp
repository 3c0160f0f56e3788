// Several ranks by the program: how they are started, what they are told, and how they end.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "ranks_fixture.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Hosts;
using e2e::Program;
using e2e::Ranks;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::vector<std::string> kEndless = {"--train.steps=10000000", "--log.every=1",
                                           "--optim.lr=1e-6"};

std::vector<std::string> endless(std::vector<std::string> more) {
  more.insert(more.end(), kEndless.begin(), kEndless.end());
  return more;
}

TEST_F(Ranks, EveryBackendGivesTheSameBits) {
  const Finished threads = run_ranks("threads", {"-n", "2"});
  ASSERT_EQ(threads.exit_code, 0) << threads.err;
  EXPECT_THAT(threads.out, HasSubstr("step 40/40"));
  const Finished gloo = run_ranks("gloo", {"-n", "2", "--backend=gloo"});
  ASSERT_EQ(gloo.exit_code, 0) << gloo.err;
  EXPECT_THAT(gloo.err, Not(HasSubstr("[rank 1]")));
  EXPECT_EQ(weights("gloo"), weights("threads"));
  run_ranks("tcp", {"-n", "2", "--backend=tcp"});
  EXPECT_EQ(weights("tcp"), weights("threads"));
  // Rank 0 alone says what goes on.
  const std::size_t at = gloo.out.find("step 40/40");
  ASSERT_NE(at, gloo.out.npos);
  EXPECT_EQ(gloo.out.find("step 40/40", at + 1), gloo.out.npos);
  EXPECT_THAT(processes(), IsEmpty());
}

// Before a thread, a process, a token or a directory is made.
TEST_F(Ranks, MoreThanABatchHasAreRefusedAtOnce) {
  for (const char* backend : {"threads", "gloo"}) {
    const Finished refused = run_ranks("many", {"-n", "1000", "--backend=" + std::string(backend)});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(error_line(refused), HasSubstr("1,000 ranks"));
    EXPECT_FALSE(fs::exists(path("many")));
  }
  std::vector<std::string> plan = ranked("many", {"-n", "1000"});
  plan.front() = "plan";
  EXPECT_THAT(error_line(atoll(plan)), HasSubstr("1,000 ranks"));
}

TEST_F(Ranks, WhicheverWayCollectivesGoTheBitsAreTheSame) {
  const std::vector<std::string> three = {"-n", "3", "--train.batch_size=6",
                                          "--train.micro_batch=1"};
  const Finished direct = run_ranks("direct", three);
  ASSERT_EQ(direct.exit_code, 0) << direct.err;
  for (const char* algorithm : {"ring", "hierarchical", "auto"}) {
    std::vector<std::string> over_tcp = three;
    for (const std::string& more : {std::string("--backend=tcp"), std::string("--dp.zero=2"),
                                    "--comm.algorithm=" + std::string(algorithm)})
      over_tcp.push_back(more);
    const Finished run = run_ranks(algorithm, over_tcp);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(weights(algorithm), weights("direct")) << algorithm;
  }
}

TEST_F(Ranks, ByHandTheyMeetInADirectory) {
  const std::string meeting = "--rendezvous=file://" + path("meeting");
  Program first(ranked("hand", {"--rank=0", "--ranks=2", meeting}));
  const Finished second = run_ranks("hand", {"--rank=1", "--ranks=2", meeting});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out + second.err, IsEmpty()) << "rank 0 speaks";
  EXPECT_EQ(first.wait().exit_code, 0);
  ASSERT_EQ(run_ranks("threads", {"-n", "2"}).exit_code, 0);
  EXPECT_EQ(weights("hand"), weights("threads"));
}

TEST_F(Ranks, WithOtherSettingsAreRefusedByOneOfThem) {
  const std::string meeting = "--rendezvous=file://" + path("meeting");
  Program first(ranked("hand", {"--rank=0", "--ranks=2", meeting}));
  const Finished second =
      run_ranks("hand", {"--rank=1", "--ranks=2", meeting, "--optim.weight_decay=0.5"});
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(error_line(second), AllOf(HasSubstr("rank 1 has `optim.weight_decay = 0.5`"),
                                        HasSubstr("rank 0 has `optim.weight_decay = 0.1`")));
  const Finished other = first.wait();
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, IsEmpty());
}

TEST_F(Ranks, AKilledOneTakesTheOthersAlongAndIsNamedOnce) {
  Program parent(ranked("run", endless({"-n", "3", "--backend=gloo", "--train.batch_size=6"})));
  ASSERT_TRUE(trains_soon("run"));
  const pid_t victim = process_of(2);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  const Finished finished = parent.wait();
  EXPECT_EQ(finished.exit_code, 1);
  const std::string line =
      fmt::format("\nerror: rank 2 (pid {}) was killed by signal 9 (Killed) after step ", victim);
  const std::string err = "\n" + finished.err;
  EXPECT_THAT(err, HasSubstr(line));
  EXPECT_EQ(err.find("error: "), err.rfind("error: ")) << err;
  EXPECT_THAT(processes(), IsEmpty());
}

TEST_F(Ranks, NoneOutlivesTheProcessThatStartedThem) {
  auto parent = std::make_unique<Program>(ranked("run", endless({"-n", "2", "--backend=gloo"})));
  ASSERT_TRUE(trains_soon("run"));
  ASSERT_NE(process_of(1), 0);
  parent->send(SIGKILL);
  parent->wait();
  EXPECT_TRUE(soon([&] { return processes().empty(); }));
}

TEST_F(Ranks, ASignalStopsThemAllAfterTheSameStepWithOneCheckpoint) {
  for (const char* backend : {"threads", "gloo"}) {
    const std::string name = backend;
    Program parent(ranked(name, endless({"-n", "2", std::string("--backend=") + backend})));
    ASSERT_TRUE(trains_soon(name));
    parent.send(SIGTERM);
    // A scheduler's wrapper sends its own, and so does who forwards it to the ranks.
    for (const pid_t pid : processes()) ::kill(pid, SIGTERM);
    const Finished finished = parent.wait();
    EXPECT_EQ(finished.exit_code, 143) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr("info: SIGTERM: the run saves after this step and ends"));
    EXPECT_THAT(finished.err, HasSubstr("stopped by SIGTERM after step "));
    EXPECT_THAT(finished.err, Not(HasSubstr("error")));
    int checkpoints = 0;
    for (const auto& entry : fs::directory_iterator(root_.path / name / "checkpoints")) {
      checkpoints += entry.is_directory() ? 1 : 0;
    }
    EXPECT_EQ(checkpoints, 1);
  }
}

TEST_F(Ranks, WhatCannotBeIsOneLine) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& words) {
    const Finished finished = run_ranks("run", more);
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    EXPECT_THAT(error_line(finished), HasSubstr(words));
  };
  refused({"-n", "0"}, "-n 0");
  refused({"-n", "2", "--backend=gluu"}, "did you mean gloo?");
  refused({"--rank=2", "--ranks=2", "--rendezvous=tcp://h:1"}, "from 0 to 1");
  for (const char* backend : {"threads", "gloo"}) {
    refused({"-n", "3", std::string("--backend=") + backend}, "train.batch_size");
    refused({"-n", "2", std::string("--backend=") + backend, "--data.text=no/such.txt"},
            "no/such.txt");
  }
  refused({"--hostfile", path("no-hosts")}, "no-hosts");
  EXPECT_THAT(error_line(atoll(launch("run", {"--max-ranks=2", "--min-ranks=3"}))),
              HasSubstr("--min-ranks=3"));
  EXPECT_THAT(error_line(atoll(launch("run", {"--max-ranks=2", "--backend=threads"}))),
              HasSubstr("gloo, tcp or mpi"));
}

TEST_F(Ranks, ARendezvousWhereNobodyIsIsNamed) {
  const Finished finished = run_ranks(
      "run", {"--rank=1", "--ranks=2", "--rendezvous=tcp://127.0.0.1:1", "--comm.timeout_s=0.5"});
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(error_line(finished), HasSubstr("127.0.0.1:1"));
}

TEST_F(Ranks, APortInUseIsNamed) {
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  ::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &length);
  const std::string port = std::to_string(::ntohs(address.sin_port));
  const Finished finished =
      run_ranks("run", {"-n", "2", "--backend=gloo", "--rendezvous=tcp://127.0.0.1:" + port});
  ::close(taken);
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(error_line(finished), HasSubstr(port));
}

TEST_F(Hosts, OfAHostfileAreReachedBySsh) {
  write_file(path("hosts"), "near-a slots=1\nnear-b slots=2\n");
  const Finished finished =
      run_ranks("run", {"-n", "2", "--hostfile", path("hosts"), "--rendezvous=tcp://127.0.0.1:0"});
  ASSERT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(read_file(path("asked")), AnyOf("near-a\nnear-b\n", "near-b\nnear-a\n"));
  EXPECT_THAT(finished.out, HasSubstr("step 40/40"));
  ASSERT_EQ(run_ranks("threads", {"-n", "2"}).exit_code, 0);
  EXPECT_EQ(weights("run"), weights("threads"));
}

TEST_F(Hosts, RanksOfOtherHostsEndWithTheConnection) {
  write_file(path("hosts"), "near-a\nnear-b\n");
  auto parent = std::make_unique<Program>(
      ranked("run", endless({"--hostfile", path("hosts"), "--rendezvous=tcp://127.0.0.1:0"})));
  ASSERT_TRUE(trains_soon("run"));
  parent->send(SIGTERM);
  const Finished stopped = parent->wait();
  EXPECT_EQ(stopped.exit_code, 143) << stopped.err;
  EXPECT_TRUE(soon([&] { return processes().empty(); }));
}

}  // namespace
}  // namespace atl
