// Ranks that have parts of the model, by the program: over every backend, under `atoll launch` when
// one is killed, and as islands of different layouts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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

struct Layout {
  std::string name;
  int ranks = 1;
  std::vector<std::string> settings;
};

const std::vector<Layout> kLayouts = {
    {"shared", 2, {"--parallel.tp=2"}},
    {"staged", 2, {"--parallel.pp=2", "--parallel.schedule=zb-v"}},
    {"both", 4, {"--parallel.tp=2", "--parallel.pp=2"}},
    {"sharded", 4, {"--parallel.pp=2", "--dp.zero=3"}},
    {"sequences", 2, {"--parallel.cp=2", "--train.dropout=0"}},
    {"experts",
     4,
     {"--parallel.ep=2", "--parallel.tp=2", "--model.family=mixtral", "--model.num_experts=4"}}};

class Layouts : public e2e::Islands {
 protected:
  std::vector<std::string> of(const Layout& layout, const std::string& name, int steps) const {
    std::vector<std::string> more = layout.settings;
    more.insert(more.end(), {"--train.batch_size=8", "--train.micro_batch=1", "--log.every=1",
                             "--log.tensorboard=false", "--checkpoint.every=10",
                             fmt::format("--train.steps={}", steps)});
    return ranked(name, more);
  }
  std::vector<std::string> with_ranks(const Layout& layout, const std::string& name, int steps,
                                      const std::string& backend) const {
    std::vector<std::string> words = of(layout, name, steps);
    words.insert(words.end(), {"-n", std::to_string(layout.ranks), "--backend=" + backend});
    return words;
  }
  std::vector<std::string> launched(const Layout& layout, const std::string& name, int steps,
                                    int most) const {
    std::vector<std::string> words = of(layout, name, steps);
    words.front() = "launch";
    words.insert(words.end(), {fmt::format("--min-ranks={}", layout.ranks),
                               fmt::format("--max-ranks={}", most), "--max-restarts=5"});
    return words;
  }
  /// The process of a run that was started as this rank; 0: there is none.
  pid_t rank_of(const std::string& name, int rank) const {
    const std::string run = path(name) + " ", flag = fmt::format("--rank={} ", rank);
    for (const pid_t pid : processes()) {
      const std::string words = command_line(pid);
      if (words.find(run) != words.npos && words.find(flag) != words.npos) return pid;
    }
    return 0;
  }
};

TEST_F(Layouts, NoBackendChangesABit) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    const std::string expected = layout.name + "-threads";
    ASSERT_EQ(atoll(with_ranks(layout, expected, 20, "threads")).exit_code, 0);
    std::vector<std::string> backends = {"tcp", "gloo"};
    if (e2e::has_mpirun()) backends.emplace_back("mpi");
    for (const std::string& backend : backends) {
      const std::string name = layout.name + "-" + backend;
      const Finished finished = atoll(with_ranks(layout, name, 20, backend));
      EXPECT_EQ(finished.exit_code, 0) << finished.err;
      EXPECT_EQ(weights(name, 20), weights(expected, 20)) << backend;
    }
  }
}

// The same number of ranks goes on, so the bits are those of a run that nothing disturbed.
TEST_F(Layouts, AKilledRankCostsNoBit) {
  std::mt19937 random(11);
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(layout.name);
    const std::string expected = layout.name + "-whole", name = layout.name + "-killed";
    ASSERT_EQ(atoll(with_ranks(layout, expected, 60, "threads")).exit_code, 0);
    Program agent(launched(layout, name, 60, layout.ranks));
    EXPECT_TRUE(took(name, 25));
    const int rank = static_cast<int>(random() % static_cast<unsigned>(layout.ranks));
    const pid_t victim = rank_of(name, rank);
    ASSERT_NE(victim, 0);
    ::kill(victim, SIGKILL);
    const Finished finished = agent.wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.err, HasSubstr("going on from the newest checkpoint"));
    EXPECT_EQ(weights(name, 60), weights(expected, 60));
    EXPECT_THAT(processes(), IsEmpty());
  }
}

// Three ranks are left of four, and two share a product.
TEST_F(Layouts, WhatIsLeftGoesOnInTheLargestLayoutThatFits) {
  const Layout& layout = kLayouts[0];
  Program agent(launched(layout, "run", 60, 4));
  EXPECT_TRUE(took("run", 25));
  const pid_t victim = rank_of("run", 3);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("from the newest checkpoint with 2 ranks (restart 1 of 5)"));
  EXPECT_FALSE(weights("run", 60).empty());
}

// Ranks whose state is in copies, in every way that there is to keep them.
const std::vector<Layout> kCopied = {
    {"shared", 2, {"--parallel.tp=2"}},
    {"staged", 2, {"--parallel.pp=2", "--parallel.schedule=zb-h1"}},
    {"both", 4, {"--parallel.tp=2", "--parallel.pp=2", "--train.dtype=bf16"}},
    {"sharded", 4, {"--parallel.pp=2", "--dp.zero=3"}},
    {"sharded_products", 4, {"--parallel.tp=2", "--dp.zero=1", "--optim.kind=muon"}},
    {"same", 4, {"--parallel.tp=2"}},
    {"sequences", 2, {"--parallel.cp=2", "--train.dropout=0", "--dp.zero=2"}},
    {"experts",
     4,
     {"--parallel.ep=2", "--parallel.cp=2", "--model.family=mixtral", "--model.num_experts=4",
      "--train.dropout=0"}}};

class Copies : public Layouts {
 protected:
  std::vector<std::string> copied(const Layout& layout, const std::string& name, int most,
                                  int checkpoint_every) const {
    std::vector<std::string> words = launched(layout, name, 60, most);
    std::replace(words.begin(), words.end(), std::string("--checkpoint.every=10"),
                 fmt::format("--checkpoint.every={}", checkpoint_every));
    words.emplace_back("--launch.replicate=true");
    return words;
  }
  /// The process of a run that was started as this member, with rank `number`; 0: there is none.
  pid_t member(const std::string& name, int number) const {
    const std::string run = path(name) + " ", flag = fmt::format("--member={} ", number);
    for (const pid_t pid : processes()) {
      const std::string words = command_line(pid) + " ";
      if (words.find(run) != words.npos && words.find(flag) != words.npos) return pid;
    }
    return 0;
  }
};

// There is no checkpoint that it could go on from instead.
TEST_F(Copies, AKilledRankCostsNeitherBitNorStep) {
  std::mt19937 random(12);
  for (const Layout& layout : kCopied) {
    SCOPED_TRACE(layout.name);
    const std::string expected = layout.name + "-whole", name = layout.name + "-killed";
    ASSERT_EQ(atoll(with_ranks(layout, expected, 60, "threads")).exit_code, 0);
    Program agent(copied(layout, name, layout.ranks, 1000));
    EXPECT_TRUE(took(name, 25));
    const pid_t victim = member(name, static_cast<int>(random() % unsigned(layout.ranks)));
    ASSERT_NE(victim, 0);
    ::kill(victim, SIGKILL);
    const Finished finished = agent.wait();
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_THAT(finished.err, AllOf(HasSubstr("had of step "), HasSubstr(" is saved as ")));
    EXPECT_EQ(weights(name, 60), weights(expected, 60));
    EXPECT_THAT(processes(), IsEmpty());
  }
}

TEST_F(Copies, TheLargestLayoutThatIsLeftGoesOnFromThem) {
  Program agent(copied({"", 2, {"--parallel.tp=2"}}, "run", 4, 1000));
  EXPECT_TRUE(took("run", 25));
  const pid_t victim = member("run", 3);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, AllOf(HasSubstr("what 3 ranks of 4 had"),
                                  HasSubstr("with 2 ranks (restart 1 of 5)")));
  EXPECT_FALSE(weights("run", 60).empty());
}

// Rank 1 keeps the copy of rank 2.
TEST_F(Copies, WithoutOneOfThemItGoesOnFromTheNewestCheckpoint) {
  const Layout layout = {"", 4, {"--parallel.tp=2", "--parallel.pp=2"}};
  ASSERT_EQ(atoll(with_ranks(layout, "whole", 60, "threads")).exit_code, 0);
  Program agent(copied(layout, "run", 4, 10));
  EXPECT_TRUE(took("run", 25));
  const pid_t first = member("run", 1), second = member("run", 2);
  ASSERT_TRUE(first != 0 && second != 0);
  ::kill(first, SIGKILL);
  ::kill(second, SIGKILL);
  const Finished finished = agent.wait();
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("cannot be put together"));
  EXPECT_EQ(weights("run", 60), weights("whole", 60));
}

// One island has two data-parallel pairs that share products, the other a pipeline. A rank of each
// is killed in turn.
TEST_F(Layouts, IslandsOfTwoLayoutsSurviveALostRankEach) {
  const Layout shared = {"lyon", 4, {"--parallel.tp=2", "--dp.zero=1"}};
  const Layout staged = {"turin", 2, {"--parallel.pp=2"}};
  const std::string ledger = path("ledger");
  Program coordinator({"coordinator", "--dir", ledger, "--listen", kAnywhere});
  const std::string place = address_of(coordinator);
  const auto island = [&](const Layout& layout) {
    std::vector<std::string> words = launched(layout, layout.name, 200, layout.ranks);
    words.insert(words.end(), {"--island.coordinator=" + place, "--island.name=" + layout.name,
                               "--outer.islands=2", "--outer.inner_steps=5", "--outer.grace_s=1"});
    return words;
  };
  Program first(island(shared)), second(island(staged));
  for (const auto& [layout, steps] : {std::pair(shared, 25), std::pair(staged, 60)}) {
    EXPECT_TRUE(took(layout.name, steps));
    const pid_t victim = rank_of(layout.name, layout.ranks - 1);
    EXPECT_NE(victim, 0) << layout.name;
    if (victim != 0) ::kill(victim, SIGKILL);
  }
  const Finished one = first.wait(), two = second.wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(two.exit_code, 0) << two.err;
  for (const Finished& finished : {one, two}) {
    EXPECT_THAT(finished.err, HasSubstr("from the newest checkpoint with"));
  }
  EXPECT_EQ(coordinator.wait().exit_code, 0);
  EXPECT_EQ(model("lyon"), model("turin"));
  const Finished shown = atoll({"runs", "show", ledger});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("; finished"), HasSubstr("audit       proved")));
  EXPECT_THAT(processes(), IsEmpty());
}

}  // namespace
}  // namespace atl
