// What schedulers and engines leave in the environment of the processes that they start, acted out.

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "ranks_fixture.h"

namespace atl {
namespace {

using e2e::error_line;
using e2e::Finished;
using e2e::Program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Environment = std::map<std::string, std::string>;

// A network for what this thread starts; without root it stays in that which it has.
class OwnNetwork {
 public:
  OwnNetwork() : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    if (::unshare(CLONE_NEWNET) == 0 && std::system("ip link set lo up") != 0) leave();
  }
  ~OwnNetwork() {
    leave();
    ::close(before_);
  }
  OwnNetwork(const OwnNetwork&) = delete;
  OwnNetwork& operator=(const OwnNetwork&) = delete;

 private:
  void leave() const { ::setns(before_, CLONE_NEWNET); }

  int before_;
};

// Takes what a TrainJob reports, until it is destroyed: kubeflow_server.py.
class TrainJobServer {
 public:
  TrainJobServer(const std::string& identity, const std::string& reports) : child_(::fork()) {
    if (child_ != 0) return;
    ::execlp("python3", "python3",
             (test_source_dir() / "tests/e2e/kubeflow_server.py").string().c_str(),
             identity.c_str(), reports.c_str(), nullptr);
    ::_exit(127);
  }
  ~TrainJobServer() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  TrainJobServer(const TrainJobServer&) = delete;
  TrainJobServer& operator=(const TrainJobServer&) = delete;

 private:
  pid_t child_;
};

class Engines : public e2e::Elastic {
 protected:
  void SetUp() override {
    Elastic::SetUp();
    // Each test has an address of its own, so that those that run at once do not meet.
    address_ = fmt::format("127.{}.{}.{}", 1 + ::getpid() % 200, ::getpid() / 200 % 250,
                           1 + ::getpid() / 50'000 % 250);
  }

  // A process for each environment, all with the same words, until all have ended.
  static std::vector<Finished> acted_out(const std::vector<std::string>& words,
                                         const std::vector<Environment>& environments) {
    std::vector<std::unique_ptr<Program>> programs;
    for (const Environment& environment : environments) {
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      programs.push_back(std::make_unique<Program>(words));
      for (const auto& [name, value] : environment) ::unsetenv(name.c_str());
    }
    std::vector<Finished> ends;
    for (const auto& program : programs) ends.push_back(program->wait());
    return ends;
  }

  std::vector<Finished> trained_as(const std::string& name,
                                   const std::vector<Environment>& environments,
                                   std::vector<std::string> more = {}) const {
    std::vector<Finished> ends =
        acted_out(ranked(name, e2e::exact(std::move(more), 3)), environments);
    for (const Finished& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
    return ends;
  }

  // The bits of so many steps of one rank.
  void expect_bits_of_one(const std::string& name) {
    if (whole_.empty()) {
      train_whole(3);
      whole_ = weights("whole", 3);
    }
    EXPECT_EQ(weights(name, 3), whole_) << name;
  }

  std::string address_;
  std::map<std::string, std::string> whole_;
};

TEST_F(Engines, ThatStartRanksMakeOneRun) {
  std::vector<Environment> torchrun;
  for (const char* rank : {"0", "1"}) {
    torchrun.push_back({{"RANK", rank},
                        {"WORLD_SIZE", "2"},
                        {"LOCAL_RANK", rank},
                        {"LOCAL_WORLD_SIZE", "2"},
                        {"MASTER_ADDR", address_},
                        {"MASTER_PORT", "29410"},
                        {"TORCHELASTIC_RUN_ID", "none"}});
  }
  const std::vector<Finished> ends = trained_as("torchrun", torchrun);
  EXPECT_THAT(ends[0].err, HasSubstr("torchrun has started 2 ranks (RANK=0, WORLD_SIZE=2, "));
  EXPECT_THAT(ends[1].err, Not(HasSubstr("has started")));
  expect_bits_of_one("torchrun");
}

TEST_F(Engines, ThatStartMachinesMakeOneRun) {
  const std::string host = address_;
  const auto both = [](const char* rank, const Environment& rest) {
    std::vector<Environment> machines = {rest, rest};
    machines[0][rank] = "0";
    machines[1][rank] = "1";
    return machines;
  };
  trained_as("lws",
             both("LWS_WORKER_INDEX", {{"LWS_GROUP_SIZE", "2"}, {"LWS_LEADER_ADDRESS", host}}));
  expect_bits_of_one("lws");
  trained_as("dstack", both("DSTACK_NODE_RANK",
                            {{"DSTACK_NODES_NUM", "2"}, {"DSTACK_MASTER_NODE_IP", host}}));
  expect_bits_of_one("dstack");
  trained_as("aws", both("AWS_BATCH_JOB_NODE_INDEX",
                         {{"AWS_BATCH_JOB_NUM_NODES", "2"},
                          {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", host}}));
  expect_bits_of_one("aws");
  trained_as("job", both("JOB_COMPLETION_INDEX", {}),
             {"--ranks=2", fmt::format("--rendezvous=tcp://{}:29500", host)});
  expect_bits_of_one("job");
}

// The words of the pods' containers, as a Job would start them.
TEST_F(Engines, AManifestThatLaunchPrintsMakesOneRun) {
  const std::vector<std::string> asked =
      launch("printed", e2e::exact({"--max-ranks=4", "--slots=2", "--image=atoll:1"}, 3));
  for (const char* kind : {"kubernetes", "jobset"}) {
    std::vector<std::string> words = asked;
    words.push_back(fmt::format("--print={}", kind));
    const Finished printed = acted_out(words, {{}})[0];
    ASSERT_EQ(printed.exit_code, 0) << printed.err;
    const std::size_t begin = printed.out.find("args: [") + 6;
    const nlohmann::json args =
        nlohmann::json::parse(printed.out.substr(begin, printed.out.find('\n', begin) - begin));
    std::vector<std::string> called = args.get<std::vector<std::string>>();
    const auto recipe = std::find_if(asked.begin(), asked.end(), [](const std::string& word) {
      return word.ends_with(".toml");
    });
    ASSERT_NE(recipe, asked.end());
    std::replace(called.begin(), called.end(), std::string("/recipe/run.toml"), *recipe);
    // Names of pods are for the cluster's DNS, which is not here.
    called.push_back(fmt::format("--rendezvous=tcp://{}:29500", address_));
    const std::vector<Finished> ends =
        acted_out(called, {{{"JOB_COMPLETION_INDEX", "0"}}, {{"JOB_COMPLETION_INDEX", "1"}}});
    for (const Finished& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
    expect_bits_of_one("printed");
    std::filesystem::remove_all(path("printed"));
  }
}

// Two ranks on each of two machines, over IPv6 where there is one.
TEST_F(Engines, ThatStartMachinesWithSeveralRanksMakeOneRun) {
  std::vector<Environment> trainer;
  std::vector<Environment> sky;
  for (const char* node : {"0", "1"}) {
    trainer.push_back({{"PET_NODE_RANK", node},
                       {"PET_NNODES", "2"},
                       {"PET_NPROC_PER_NODE", "2"},
                       {"PET_MASTER_ADDR", address_},
                       {"PET_MASTER_PORT", "29411"}});
    sky.push_back({{"SKYPILOT_NODE_RANK", node},
                   {"SKYPILOT_NUM_NODES", "2"},
                   {"SKYPILOT_NODE_IPS", address_ + "\n" + address_}});
  }
  const std::vector<Finished> ends = trained_as("trainer", trainer);
  EXPECT_THAT(ends[0].err, HasSubstr("Kubeflow Trainer has started 2 machines"));
  EXPECT_THAT(ends[0].err, HasSubstr("4 ranks meet at tcp://"));
  expect_bits_of_one("trainer");
  trained_as("sky", sky, {"-n", "2", "--backend=tcp"});
  expect_bits_of_one("sky");
}

TEST_F(Engines, TwoMachinesMeetOverIpv6) {
  const OwnNetwork network;
  if (std::system("grep -q ' lo$' /proc/net/if_inet6 2>/dev/null") != 0) {
    GTEST_SKIP() << "there is no IPv6 here, and a network of its own needs root";
  }
  std::vector<Environment> ranks;
  const std::string port = std::to_string(20'000 + ::getpid() % 9'000);
  for (const char* rank : {"0", "1"}) {
    ranks.push_back(
        {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", port}});
  }
  for (const char* backend : {"gloo", "tcp"}) {
    trained_as(backend, ranks, {fmt::format("--backend={}", backend)});
    expect_bits_of_one(backend);
  }
}

// One that is the launch, and one that joins it, called alike.
TEST_F(Engines, ThatStartMachinesMakeOneElasticLaunch) {
  std::vector<Environment> group;
  for (const char* index : {"0", "1"}) {
    group.push_back(
        {{"LWS_WORKER_INDEX", index}, {"LWS_GROUP_SIZE", "2"}, {"LWS_LEADER_ADDRESS", address_}});
  }
  const std::vector<Finished> ends =
      acted_out(launch("elastic", e2e::exact({"--min-ranks=2", "--backend=tcp"}, 3)), group);
  for (const Finished& end : ends) EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(ends[0].err, HasSubstr("LeaderWorkerSet has started 2 of `atoll launch`"));
  expect_bits_of_one("elastic");
}

TEST_F(Engines, ARankWhoseNumberOfRanksIsNotKnownIsRefused) {
  const std::vector<Finished> ends =
      acted_out(ranked("alone", {}), {{{"JOB_COMPLETION_INDEX", "1"}}});
  EXPECT_EQ(ends[0].exit_code, 2);
  EXPECT_THAT(error_line(ends[0]), AllOf(HasSubstr("a Kubernetes Job has started this beside "
                                                   "others (JOB_COMPLETION_INDEX=1)"),
                                         HasSubstr("give --ranks=N")));
  EXPECT_FALSE(std::filesystem::exists(path("alone")));
}

// A TrainJob of Kubeflow says where it takes reports, which authority has signed that, and a token.
TEST_F(Engines, KubeflowHearsHowFarARunIs) {
  if (std::system("command -v python3 >/dev/null") != 0) GTEST_SKIP() << "needs python3";
  const std::string authority = path("authority");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"certs", "init", authority},
        {"certs", "issue", authority, "server", "--host", "127.0.0.1"}}) {
    const Finished made = acted_out(words, {{}})[0];
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  const std::string reports = path("reports");
  const TrainJobServer server(authority + "/identities/server", reports);
  ASSERT_TRUE(soon([&] { return std::filesystem::exists(reports + ".port"); }));
  write_file(path("token"), "abc.def\n");
  const Environment job = {
      {"KUBEFLOW_TRAINER_SERVER_URL",
       fmt::format("https://127.0.0.1:{}/trainjobs/t/status", read_file(reports + ".port"))},
      {"KUBEFLOW_TRAINER_SERVER_CA_CERT", authority + "/ca.pem"},
      {"KUBEFLOW_TRAINER_SERVER_TOKEN", path("token")}};
  trained_as("job", {job});
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(reports));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0]["path"], "/trainjobs/t/status");
  EXPECT_EQ(lines[0]["token"], "Bearer abc.def");
  EXPECT_LT(lines[0]["body"]["trainerStatus"]["progressPercentage"], 100);
  const nlohmann::json last = lines.back()["body"]["trainerStatus"];
  EXPECT_EQ(last["progressPercentage"], 100);
  EXPECT_EQ(last["estimatedRemainingSeconds"], 0);
  EXPECT_EQ(last["metrics"][0], nlohmann::json({{"name", "step"}, {"value", "3"}}));
  EXPECT_EQ(last["metrics"][1]["name"], "loss");

  // Whom it does not trust it tells nothing, and trains on.
  Environment stranger = job;
  stranger.erase("KUBEFLOW_TRAINER_SERVER_CA_CERT");
  const std::vector<Finished> ends = trained_as("stranger", {stranger});
  EXPECT_THAT(ends[0].err, HasSubstr("progress was not reported to Kubeflow at 127.0.0.1"));
  std::istringstream again(read_file(reports));
  EXPECT_EQ(static_cast<std::size_t>(std::count(std::istreambuf_iterator<char>(again), {}, '\n')),
            lines.size());
}

// What a recipe starts by itself does not inherit the ranks.
TEST_F(Engines, IslandsThatAreStartedHereAreNoRanksOfTheirs) {
  const Environment rank = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", address_}, {"MASTER_PORT", "29400"}};
  const std::vector<Finished> ends =
      acted_out(ranked("islands", {"--islands", "1", "--train.steps=1"}), {rank});
  EXPECT_EQ(ends[0].exit_code, 0) << ends[0].err;
  const std::vector<Finished> alone =
      acted_out(ranked("one", {"--rank=0", "--ranks=1", "--train.steps=1"}), {rank});
  EXPECT_EQ(alone[0].exit_code, 0) << alone[0].err;
}

// A pod of the second rank may run before the name of the first one is known.
TEST_F(Engines, AHostThatIsNotKnownIsWaitedForAndThenNamed) {
  const Environment rank = {{"RANK", "1"},
                            {"WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "no-such-host.invalid"},
                            {"MASTER_PORT", "29400"}};
  const std::vector<Finished> ends = acted_out(ranked("lost", {"--comm.timeout_s=1"}), {rank});
  EXPECT_EQ(ends[0].exit_code, 1) << ends[0].err;
  EXPECT_THAT(error_line(ends[0]),
              HasSubstr("no-such-host.invalid, where the ranks meet, is not known here after 1 s"));
}

}  // namespace
}  // namespace atl
