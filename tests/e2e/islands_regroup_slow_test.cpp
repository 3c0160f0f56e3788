// Ranks of islands under `atoll launch` that are killed, and others that join, while the run of
// islands goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "islands_fixture.h"

namespace atl {
namespace {

using e2e::atoll;
using e2e::Finished;
using e2e::Program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class IslandRegroup : public e2e::Islands {
 protected:
  /// An island of two ranks under a launch.
  std::vector<std::string> launched(const std::string& name, const std::string& place,
                                    std::vector<std::string> more) const {
    std::vector<std::string> words = one_of(name, place, std::move(more));
    words.front() = "launch";
    words.insert(words.end(), {"--min-ranks=1", "--max-ranks=2", "--max-restarts=9"});
    return words;
  }
  std::vector<std::string> one_of(const std::string& name, const std::string& place,
                                  std::vector<std::string> more) const {
    more.insert(more.end(),
                {"--island.coordinator=" + place, "--island.name=" + name, "--outer.inner_steps=10",
                 "--outer.grace_s=1", "--train.batch_size=2", "--train.micro_batch=1",
                 "--checkpoint.every=20", "--log.every=1", "--log.tensorboard=false"});
    return ranked(name, more);
  }
  /// The process of the island called `name` that was started with that number; 0: there is none.
  pid_t rank_of(const std::string& name, int number) const {
    const std::string run = path(name) + " ", member = fmt::format("--member={} ", number);
    for (const pid_t pid : processes()) {
      const std::string words = command_line(pid);
      if (words.find(run) != words.npos && words.find(member) != words.npos) return pid;
    }
    return 0;
  }
  /// What a trial varies: how the parameters are shared, and how islands exchange them.
  static std::vector<std::string> kind(int i) {
    const std::vector<std::vector<std::string>> algorithms = {
        {},
        {"--outer.algorithm=streaming", "--outer.fragments=2", "--outer.overlap=2",
         "--outer.merge=0.5"},
        {"--outer.algorithm=eager"}};
    std::vector<std::string> settings = algorithms[static_cast<std::size_t>(i % 3)];
    const int zero = i % 4;
    settings.push_back(fmt::format("--dp.zero={}", zero));
    settings.push_back(fmt::format("--launch.replicate={}", zero > 0));
    return settings;
  }
};

// Every other time both islands are under a launch.
TEST_F(IslandRegroup, KillsAtAnyMomentLeaveOneModel) {
  std::mt19937 random(7);
  for (int i = 0; i < num_kills(); ++i) {
    std::vector<std::string> settings = kind(i);
    settings.insert(settings.end(), {"--outer.islands=2", "--train.steps=100"});
    const std::string first = fmt::format("lyon-{}", i), second = fmt::format("turin-{}", i);
    const std::string ledger = path(fmt::format("ledger-{}", i));
    Program coordinator({"coordinator", "--dir", ledger, "--listen", kAnywhere});
    const std::string place = address_of(coordinator);
    Program island(launched(first, place, settings));
    Program other(i % 2 == 0 ? one_of(second, place, settings) : launched(second, place, settings));
    const auto steps = static_cast<std::int64_t>(random() % 80);
    const int number = static_cast<int>(random() % 2);
    const auto moment = std::chrono::microseconds(random() % 20000);
    EXPECT_TRUE(steps == 0 || took(first, steps));
    std::this_thread::sleep_for(moment);
    if (const pid_t victim = rank_of(first, number); victim != 0) ::kill(victim, SIGKILL);
    const Finished one = island.wait(), two = other.wait();
    EXPECT_EQ(one.exit_code, 0) << i << ", rank " << number << ", step " << steps << one.err;
    EXPECT_EQ(two.exit_code, 0) << i << two.err;
    EXPECT_EQ(coordinator.wait().exit_code, 0) << i;
    EXPECT_EQ(model(first), model(second)) << i << one.err;
    const Finished shown = atoll({"runs", "show", ledger});
    EXPECT_THAT(shown.out, AllOf(HasSubstr("; finished"), HasSubstr("audit       proved"))) << i;
    EXPECT_THAT(processes(), IsEmpty());
    if (HasFailure()) return;
  }
}

TEST_F(IslandRegroup, ALostRankIsReplacedInPlace) {
  for (const int zero : {0, 3}) {
    const std::string name = fmt::format("lyon-{}", zero);
    const std::string ledger = path(fmt::format("ledger-{}", zero));
    Program coordinator({"coordinator", "--dir", ledger, "--listen", kAnywhere});
    std::vector<std::string> settings = kind(zero);
    settings.insert(settings.end(), {"--outer.islands=1", "--train.steps=100000",
                                     "--optim.schedule=constant", "--regrow-after=0.1"});
    Program island(launched(name, address_of(coordinator), settings));
    ASSERT_TRUE(took(name, 15));
    ::kill(rank_of(name, 1), SIGKILL);
    EXPECT_TRUE(soon([&] { return values(name, "regroup_ranks").size() == 2; }));
    const std::size_t exchanged = values(name, "outer_step").size();
    EXPECT_TRUE(soon([&] { return values(name, "outer_step").size() > exchanged + 1; }));
    island.send(SIGTERM);
    const Finished finished = island.wait();
    EXPECT_EQ(finished.exit_code, 143) << finished.err;
    EXPECT_THAT(finished.err, AllOf(HasSubstr("going on in place with 1 rank (restart 1 of 9)"),
                                    HasSubstr("starting 1 rank to join the 1 that train")));
    EXPECT_THAT(values(name, "regroup_ranks"), ::testing::ElementsAre(1, 2));
    coordinator.send(SIGTERM);
    EXPECT_EQ(coordinator.wait().exit_code, 143);
    EXPECT_THAT(processes(), IsEmpty());
  }
}

}  // namespace
}  // namespace atl
