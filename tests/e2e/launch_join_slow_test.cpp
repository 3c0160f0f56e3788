// Agents of `atoll launch --join` that are killed, lose ranks, leave, wait, or are on another
// network.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>

#include "launch_fixture.h"
#include "networks.h"

namespace atl {
namespace {

using e2e::Finished;
using e2e::Joining;
using e2e::Program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Steps that ranks take together before something happens to them.
constexpr int kTogether = 20;

TEST_F(Joining, AKilledAgentIsSurvivedAndMayComeBack) {
  Program launch(open_launch("run", {"--slots=2", "--max-ranks=3"}));
  const std::string address = address_of(launch);
  ASSERT_TRUE(took("run", kTogether));
  Program first(agent("run", address, {"--slots=1", "--name=beta"}));
  ASSERT_TRUE(regrouped("run", 3)) << launch.errors();
  ASSERT_TRUE(took("run", records("run").back().step + kTogether));
  first.send(SIGKILL);
  first.wait();
  ASSERT_TRUE(regrouped("run", 2)) << launch.errors();
  Program second(agent("run", address, {"--slots=1", "--name=beta"}));
  ASSERT_TRUE(regrouped("run", 3)) << launch.errors();
  const Finished finished = stop(launch);
  EXPECT_EQ(second.wait().exit_code, 143);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("warning: rank 2 on beta: the agent there is gone after step "),
                    HasSubstr("going on in place with 2 ranks (restart 1 of 3)"),
                    Not(HasSubstr("checkpoint with"))));
  EXPECT_THAT(processes(), IsEmpty()) << "its ranks have ended with it";
  expect_undisturbed("run");
}

TEST_F(Joining, AKilledRankOfAnAgentIsSurvived) {
  Program launch(
      open_launch("run", {"--slots=2", "--max-ranks=3", "--regrow-after=0.1", "--backend=tcp"}));
  Program beta(agent("run", address_of(launch), {"--slots=1", "--name=beta"}));
  ASSERT_TRUE(regrouped("run", 3)) << launch.errors();
  // Killed while they regroup, it would have them begin again from the checkpoint.
  ASSERT_TRUE(took("run", records("run").back().step + kTogether));
  ASSERT_NE(kill_rank(2), 0);
  // Its place is offered again.
  ASSERT_TRUE(soon([&] { return process_of(3) != 0; })) << launch.errors();
  ASSERT_TRUE(regrouped("run", 3)) << launch.errors();
  const Finished finished = stop(launch);
  EXPECT_EQ(beta.wait().exit_code, 143);
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("warning: rank 2 on beta was killed by signal 9 (Killed) after step"),
                    HasSubstr("going on in place with 2 ranks (restart 1 of 3)")));
  EXPECT_THAT(processes(), IsEmpty());
  expect_undisturbed("run");
}

TEST_F(Joining, AnAgentMayLeaveBetweenTwoSteps) {
  struct Case {
    const char* name;
    int zero;
    std::string backend;
  };
  for (const Case& c : {Case{"all", 0, "gloo"}, Case{"copies", 3, "gloo"}, Case{"tcp", 3, "tcp"}}) {
    SCOPED_TRACE(c.name);
    const std::string copies = fmt::format("--launch.replicate={}", c.zero > 0);
    Program launch(open_launch(
        c.name, {"--slots=1", "--max-ranks=3", "--backend=" + c.backend, copies}, c.zero));
    const std::string address = address_of(launch);
    Program beta(agent(c.name, address, {"--slots=2", "--name=beta", copies}, c.zero));
    ASSERT_TRUE(regrouped(c.name, 3)) << launch.errors();
    ASSERT_TRUE(took(c.name, records(c.name).back().step + kTogether));
    beta.send(SIGTERM);
    const Finished left = beta.wait();
    EXPECT_EQ(left.exit_code, 143) << left.err;
    ASSERT_TRUE(regrouped(c.name, 1)) << launch.errors();
    ASSERT_TRUE(took(c.name, records(c.name).back().step + kTogether));
    const Finished finished = stop(launch);
    EXPECT_THAT(finished.err, AllOf(HasSubstr("leaves; going on in place with 2 ranks"),
                                    HasSubstr("leaves; going on in place with 1 rank"),
                                    Not(HasSubstr("restart")), Not(HasSubstr("checkpoint with"))));
    EXPECT_THAT(processes(), IsEmpty());
    expect_undisturbed(c.name);
  }
}

TEST_F(Joining, WithoutCopiesRanksStartAgainFromACheckpoint) {
  for (const std::string backend : {"gloo", "tcp"}) {
    Program launch(
        open_launch(backend, {"--slots=1", "--max-ranks=2", "--backend=" + backend}, /*zero=*/1));
    const std::string address = address_of(launch);
    const auto takes_some = [&] {
      const std::vector<metrics::Record> all = records(backend);
      return took(backend, (all.empty() ? 0 : all.back().step) + kTogether);
    };
    ASSERT_TRUE(takes_some());
    Program beta(agent(backend, address, {"--slots=1", "--name=beta"}, /*zero=*/1));
    ASSERT_TRUE(soon([&] { return process_of(1) != 0; })) << launch.errors();
    ASSERT_TRUE(takes_some()) << launch.errors();
    beta.send(SIGTERM);
    EXPECT_EQ(beta.wait().exit_code, 143);
    ASSERT_TRUE(takes_some()) << launch.errors();
    Program gamma(agent(backend, address, {"--slots=1", "--name=gamma"}, /*zero=*/1));
    ASSERT_TRUE(soon([&] { return process_of(1) != 0; })) << launch.errors();
    ASSERT_TRUE(takes_some()) << launch.errors();
    const pid_t second = process_of(1);
    ASSERT_NE(second, 0) << launch.errors();
    ::kill(second, SIGKILL);
    ASSERT_TRUE(soon([&] { return launch.errors().find("restart 1 of 3") != std::string::npos; }))
        << launch.errors();
    ASSERT_TRUE(takes_some()) << launch.errors();
    const Finished finished = stop(launch);
    EXPECT_THAT(finished.err,
                AllOf(HasSubstr("starting again from the checkpoint with more ranks"),
                      HasSubstr("starting again from the checkpoint without the ranks that leave"),
                      HasSubstr("rank 1 on gamma was killed by signal 9"),
                      HasSubstr("going on from the newest checkpoint with 1 rank (restart 1")));
    EXPECT_EQ(gamma.wait().exit_code, 143);
    EXPECT_THAT(processes(), IsEmpty());
    expect_undisturbed(backend);
  }
}

TEST_F(Joining, ALaunchWaitsForItsFewestAndOneWaitsForRoom) {
  Program launch(open_launch("run", {"--slots=1", "--min-ranks=2", "--max-ranks=2"}));
  const std::string address = address_of(launch);
  ASSERT_TRUE(soon([&] {
    return launch.errors().find("waiting until 1 more rank joins") != std::string::npos;
  }));
  Program beta(agent("run", address, {"--slots=1", "--name=beta"}));
  ASSERT_TRUE(took("run", kTogether)) << launch.errors();
  Program spare(agent("run", address, {"--slots=1", "--name=gamma"}));
  ASSERT_TRUE(soon([&] {
    return launch.errors().find("gamma offers ranks, but there are --max-ranks=2") !=
           std::string::npos;
  })) << launch.errors();
  // With the one that leaves too few would be left.
  beta.send(SIGTERM);
  EXPECT_EQ(beta.wait().exit_code, 143);
  ASSERT_TRUE(soon([&] { return spare.errors().find("a rank begins") != std::string::npos; }))
      << launch.errors();
  ASSERT_TRUE(took("run", records("run").back().step + kTogether)) << launch.errors();
  stop(launch);
  EXPECT_EQ(spare.wait().exit_code, 143);
  EXPECT_THAT(processes(), IsEmpty());
  expect_undisturbed("run");
}

TEST_F(Joining, ASpareAgentTakesThePlaceOfALostRankAtOnce) {
  Program launch(open_launch("run", {"--slots=2", "--max-ranks=2"}));
  ASSERT_TRUE(took("run", kTogether));
  Program spare(agent("run", address_of(launch), {"--slots=1", "--name=gamma"}));
  ASSERT_TRUE(soon([&] {
    return launch.errors().find("gamma offers ranks, but") != std::string::npos;
  })) << launch.errors();
  kill_rank(1);
  ASSERT_TRUE(soon([&] { return process_of(2) != 0; })) << launch.errors();
  ASSERT_TRUE(regrouped("run", 2)) << launch.errors();
  stop(launch);
  EXPECT_EQ(spare.wait().exit_code, 143);
  expect_undisturbed("run");
}

TEST_F(Joining, ALaunchThatEndsEndsItsAgents) {
  // By a failure, and by kill -9.
  for (const bool is_killed : {false, true}) {
    const std::string name = is_killed ? "killed" : "done";
    std::vector<std::string> few = {"--slots=1", "--max-ranks=2"};
    Program launch(open_launch(name, few));
    const std::string address = address_of(launch);
    Program beta(agent(name, address, {"--slots=1", "--name=beta"}));
    ASSERT_TRUE(regrouped(name, 2)) << launch.errors();
    if (is_killed) {
      launch.send(SIGKILL);
      launch.wait();
      const Finished finished = beta.wait();
      EXPECT_EQ(finished.exit_code, 1);
      EXPECT_THAT(finished.err, HasSubstr("error: the launch at " + address + " is gone: "));
    } else {
      // A rank that cannot be replaced and is one too many.
      for (int i = 0; i < 60 && launch.errors().find("error: ") == std::string::npos; ++i) {
        for (const pid_t pid : processes()) {
          if (command_line(pid).find("--member=") != std::string::npos) ::kill(pid, SIGKILL);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
      }
      EXPECT_EQ(launch.wait().exit_code, 1);
      const Finished finished = beta.wait();
      EXPECT_EQ(finished.exit_code, 1);
      EXPECT_THAT(finished.err, AllOf(HasSubstr("error: the launch at " + address + " has failed"),
                                      HasSubstr("all restarts are used up")));
    }
    EXPECT_TRUE(soon([&] { return processes().empty(); }));
  }
}

TEST_F(Joining, TheyMeetInADirectoryToo) {
  const std::string meeting = "file://" + path("meeting");
  // The agent may come first.
  Program beta(launch("run", e2e::exact({"--join=" + meeting, "--slots=1", "--name=beta"}, 60)));
  Program first(launch(
      "run",
      e2e::exact({"--rendezvous=" + meeting, "--slots=1", "--min-ranks=2", "--max-ranks=2"}, 60)));
  const Finished finished = first.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  const Finished other = beta.wait();
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("is over"));
  train_whole(60);
  EXPECT_EQ(weights("run", 60), weights("whole", 60));
}

// What srun leaves in the environment of a task.
class Task {
 public:
  explicit Task(int rank) {
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"SLURM_PROCID", std::to_string(rank)},
                                            {"SLURM_STEP_NUM_TASKS", "2"},
                                            {"SLURM_STEP_ID", std::to_string(::getpid())},
                                            {"SLURM_JOB_ID", "7"},
                                            {"SLURM_STEP_NODELIST", "localhost"}}) {
      ::setenv(name.c_str(), value.c_str(), 1);
      names_.push_back(name);
    }
  }
  ~Task() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

TEST_F(Joining, TasksOfAnSrunAreOneLaunch) {
  const auto command = launch("run", e2e::exact({"--slots=1", "--min-ranks=2", "--dp.zero=1"}, 60));
  std::vector<std::unique_ptr<Program>> tasks;
  for (const int rank : {1, 0}) {
    const Task task(rank);
    tasks.push_back(std::make_unique<Program>(command));
  }
  for (const auto& task : tasks) {
    const Finished finished = task->wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.err, Not(HasSubstr("they wait")));  // all are at work
  }
  train_whole(60);
  EXPECT_EQ(weights("run", 60), weights("whole", 60));
  const Task task(0);
  const Finished vague = e2e::atoll(launch("run", {"--max-ranks=2"}));
  EXPECT_EQ(vague.exit_code, 2);
  EXPECT_THAT(e2e::error_line(vague), HasSubstr("say --slots=N"));
}

TEST_F(Joining, AnAgentOfAnotherNetworkTakesPart) {
  const e2e::Networks networks;
  if (!networks.works()) GTEST_SKIP() << "this needs root, and `ip`";
  networks.enter_here();
  std::vector<std::string> words = open_launch("run", {"--slots=1", "--max-ranks=2"});
  for (std::string& word : words) {
    if (word.starts_with("--rendezvous=")) word = "--rendezvous=tcp://10.97.3.1:0";
  }
  Program launch(words);
  const std::string address = address_of(launch);
  EXPECT_THAT(address, HasSubstr("10.97.3.1"));
  ASSERT_TRUE(took("run", kTogether)) << launch.errors();
  networks.enter_there();
  Program beta(agent("run", address, {"--slots=1", "--name=beta"}));
  ASSERT_TRUE(regrouped("run", 2)) << launch.errors() << beta.errors();
  ASSERT_TRUE(took("run", records("run").back().step + kTogether));
  stop(launch);
  EXPECT_EQ(beta.wait().exit_code, 143);
  EXPECT_THAT(processes(), IsEmpty());
  networks.enter_here();
  expect_undisturbed("run");
}

}  // namespace
}  // namespace atl
