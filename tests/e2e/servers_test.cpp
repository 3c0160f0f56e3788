// Parameter servers by the program: the same bits as all-reduce, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "servers_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::error_line;
using e2e::Finished;
using e2e::Servers;
using param_server::Transport;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ServersOver : public Servers, public ::testing::WithParamInterface<Transport> {};

INSTANTIATE_TEST_SUITE_P(Transport, ServersOver,
                         ::testing::Values(Transport::kGrpc, Transport::kTcp),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(ServersOver, OneUpdateAStepGiveTheBitsOfAllReduce) {
  const std::string over = transport_setting(GetParam());
  run(alone("alone", {"--train.steps=12", "--train.exact=true"}));
  run(served("one", 1, 1, {"--train.steps=12", "--train.exact=true", over}));
  EXPECT_EQ(tensors("one", 12), tensors("alone", 12));
  run(served("many", 3, 3,
             {"--train.steps=12", "--train.exact=true", "--sync.consistency=ssp",
              "--sync.staleness=0", "--sync.replicas=2", over}));
  EXPECT_EQ(tensors("many", 12), tensors("alone", 12));
}

TEST_F(Servers, GoOnFromACheckpointOfAllReduceAndBack) {
  run(alone("alone", {"--train.steps=12", "--train.exact=true", "--checkpoint.every=4",
                      "--checkpoint.keep=9"}));
  std::filesystem::create_directories(path("both/checkpoints"));
  std::filesystem::copy(checkpoint("alone", 4), checkpoint("both", 4),
                        std::filesystem::copy_options::recursive);
  std::filesystem::copy(path("alone/data"), path("both/data"),
                        std::filesystem::copy_options::recursive);
  run(served(
      "both", 2, 2,
      {"--train.steps=12", "--train.exact=true", "--checkpoint.every=4", "--checkpoint.keep=9"}));
  EXPECT_EQ(tensors("both", 12), tensors("alone", 12));
  std::filesystem::remove_all(checkpoint("both", 12));
  run(alone("both", {"--train.steps=12", "--train.exact=true", "--checkpoint.every=4",
                     "--checkpoint.keep=9"}));
  EXPECT_EQ(tensors("both", 12), tensors("alone", 12));
}

TEST_P(ServersOver, EveryConsistencyTrainToTheEnd) {
  for (const std::string consistency : {"ssp", "async", "easgd"}) {
    const std::string name = "run-" + consistency;
    const Finished finished =
        atoll(served(name, 2, 2,
                     {"--sync.consistency=" + consistency, "--checkpoint.every=20",
                      transport_setting(GetParam())}));
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_TRUE(std::filesystem::exists(checkpoint(name, 20))) << name;
    EXPECT_TRUE(std::filesystem::exists(checkpoint(name, 40))) << name;
  }
}

TEST_F(Servers, RefuseWhatDoesNotGoTogether) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    const Finished finished = atoll(served("refused", 2, 1, more));
    EXPECT_EQ(finished.exit_code, 2) << finished.err;
    return error_line(finished);
  };
  EXPECT_THAT(refusal({"--parallel.tp=2"}),
              AllOf(HasSubstr("sync.mode"), HasSubstr("parallel.tp")));
  EXPECT_THAT(refusal({"--dp.zero=1"}), HasSubstr("dp.zero"));
  EXPECT_THAT(refusal({"--optim.kind=muon"}), HasSubstr("optim.kind"));
  EXPECT_THAT(refusal({"--sync.consistency=ssp", "--sync.staleness=-1"}),
              HasSubstr("sync.staleness"));
  EXPECT_THAT(refusal({"--sync.staleness=2"}), HasSubstr("sync.consistency"));
  EXPECT_THAT(refusal({"--sync.replicas=2"}), HasSubstr("sync.servers"));
  EXPECT_THAT(refusal({"--train.exact=true", "--sync.consistency=async"}),
              HasSubstr("train.exact"));
  EXPECT_THAT(refusal({"--sync.transport=tcp", "--sync.identity=me"}),
              AllOf(HasSubstr("sync.transport = tcp has no TLS"), HasSubstr("sync.identity (me)")));
  EXPECT_THAT(refusal({"--sync.transport=udp"}), HasSubstr("sync.transport"));
  EXPECT_THAT(error_line(atoll({"server", "--transport=tcp", "--identity=me"})),
              AllOf(HasSubstr("--transport = tcp has no TLS"), HasSubstr("--identity (me)")));
  EXPECT_THAT(error_line(atoll(command("refused", {"--sync.mode=ps"}))),
              HasSubstr("sync.addresses"));
  EXPECT_THAT(error_line(atoll(command("refused", {"--sync.servers=2"}))), HasSubstr("sync.mode"));
}

TEST_P(ServersOver, NothingThatListensAreToldOf) {
  const Finished finished =
      atoll(command("away", {"--sync.mode=ps", "--sync.addresses=127.0.0.1:1", "--comm.timeout_s=1",
                             transport_setting(GetParam())}));
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("error: the scheduler of the parameter servers at 127.0.0.1:1"),
                    HasSubstr("atoll server")));
}

}  // namespace
}  // namespace atl
