// Islands whose ranks have parts of the model: their stages, shares of each product, or experts.
// What they exchange does not depend on that.

#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "atoll/island/coordinator/service.h"
#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

// A kind of exchange, by the settings that make it.
struct Kind {
  std::string name;
  std::vector<std::string> settings;
};

const std::vector<Kind> kKinds = {{"diloco", {}},
                                  {"streaming",
                                   {"--outer.algorithm=streaming", "--outer.fragments=2",
                                    "--outer.overlap=1", "--outer.merge=0.5"}},
                                  {"eager", {"--outer.algorithm=eager"}},
                                  {"gossip", {"--outer.algorithm=gossip"}},
                                  {"int8", {"--outer.codec=int8"}},
                                  {"bf16", {"--train.dtype=bf16"}}};

class IslandLayouts : public RanksFixture {
 protected:
  std::vector<std::string> settings(const std::string& run, int islands, const Kind& kind,
                                    const std::vector<std::string>& layout) {
    if (!coordinators_[run]) {
      coordinators_[run] = std::make_unique<island::CoordinatorService>(
          island::ServiceOptions{.dir = root_ / (run + "-ledger")});
    }
    std::vector<std::string> all = {"--island.coordinator=" + coordinators_[run]->address(),
                                    "--island.listen=127.0.0.1:0",
                                    fmt::format("--outer.islands={}", islands),
                                    "--outer.grace_s=30",
                                    "--outer.inner_steps=2",
                                    "--train.steps=8",
                                    "--train.batch_size=4",
                                    "--train.micro_batch=1",
                                    "--model.num_hidden_layers=3",
                                    "--model.tie_word_embeddings=false",
                                    "--eval.every=0"};
    all.insert(all.end(), kind.settings.begin(), kind.settings.end());
    all.insert(all.end(), layout.begin(), layout.end());
    return all;
  }

  // The values of the island's last checkpoint; beside others, so nothing is captured here.
  std::string train_island(const std::string& name, int ranks, std::vector<std::string> all) const {
    TrainConfig config;
    Settings settings = make_settings(config);
    all.push_back("--island.name=" + name);
    configure_ranks(config, settings, name, all);
    std::filesystem::path last;
    comm::run_threads(ranks, {.timeout_s = 120}, [&](comm::World& world) {
      const TrainOutcome outcome = Trainer(config, settings, world).run();
      if (world.rank() == 0) last = outcome.checkpoint;
    });
    return whole(last);
  }

  // A rank dies at that step.
  void train_until(const std::string& name, int ranks, const std::vector<std::string>& all,
                   std::int64_t step) {
    class Death final : public metrics::Sink {
     public:
      explicit Death(std::int64_t step) : step_(step) {}
      void write(const metrics::Record& record) override {
        if (record.step == step_) throw std::runtime_error("killed");
      }
      void flush() override {}

     private:
      std::int64_t step_;
    };
    TrainConfig config;
    Settings settings = make_settings(config);
    configure_ranks(config, settings, name, all);
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    comm::run_threads(ranks, {.timeout_s = 60}, [&](comm::World& world) {
      Trainer trainer(config, settings, world);
      Death death(step);
      if (world.rank() == 0) trainer.add_sink(death);
      trainer.run();
    });
  }

 private:
  std::map<std::string, std::unique_ptr<island::CoordinatorService>> coordinators_;
};

TEST_F(IslandLayouts, StagesAndTheirZeroChangeNoBit) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const std::string one = kind.name + "-one", two = kind.name + "-two";
    const Ended expected =
        train_ranks(one, 2, settings(one, 1, kind, {"--island.name=lyon", "--dp.zero=1"}));
    for (const char* zero : {"1", "3"}) {
      const std::string name = two + zero;
      const Ended ended = train_ranks(
          name, 4,
          settings(name, 1, kind,
                   {"--island.name=lyon", "--parallel.pp=2", "--dp.zero=" + std::string(zero)}));
      EXPECT_TRUE(ended.values == expected.values) << "ZeRO " << zero;
    }
  }
}

TEST_F(IslandLayouts, SharedProductsGiveNearlyTheSame) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const std::string one = kind.name + "-one", two = kind.name + "-two";
    const Ended expected = train_ranks(one, 1, settings(one, 1, kind, {"--island.name=lyon"}));
    const Ended ended = train_ranks(
        two, 4, settings(two, 1, kind, {"--island.name=lyon", "--parallel.tp=2", "--dp.zero=2"}));
    const std::vector<double> losses = values_of(ended.records, "loss");
    const std::vector<double> wanted = values_of(expected.records, "loss");
    ASSERT_EQ(losses.size(), wanted.size());
    // As runs without islands: sums in another order; of bf16, rounded once more.
    const double tolerance = kind.name == "bf16" ? 0.02 : 2e-4;
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], tolerance);
  }
}

TEST_F(IslandLayouts, SharedExpertsGiveNearlyTheSame) {
  const std::vector<std::string> experts = {"--model.family=mixtral", "--model.num_experts=4"};
  for (Kind kind : kKinds) {
    SCOPED_TRACE(kind.name);
    kind.settings.insert(kind.settings.end(), experts.begin(), experts.end());
    const std::string one = kind.name + "-one", two = kind.name + "-two";
    const Ended expected = train_ranks(one, 1, settings(one, 1, kind, {"--island.name=lyon"}));
    for (const char* other : {"--dp.zero=1", "--parallel.tp=2", "--parallel.cp=2"}) {
      const std::string name = two + std::string(other + 5, 6);
      const Ended ended = train_ranks(
          name, 4, settings(name, 1, kind, {"--island.name=lyon", "--parallel.ep=2", other}));
      const std::vector<double> losses = values_of(ended.records, "loss");
      const std::vector<double> wanted = values_of(expected.records, "loss");
      ASSERT_EQ(losses.size(), wanted.size());
      const double tolerance = kind.name == "bf16" ? 0.05 : 2e-4;
      for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], tolerance);
    }
  }
}

// What each rank has of the outer state, and of what a codec left unsaid, is in checkpoints that
// other numbers of ranks go on from.
TEST_F(IslandLayouts, ACheckpointGoesOnWithAnotherNumberOfRanks) {
  const Kind kind = {"topk", {"--outer.codec=topk", "--train.exact=true", "--checkpoint.every=5"}};
  const auto of = [&](const std::string& run) {
    return settings(run, 1, kind, {"--island.name=lyon", "--dp.zero=2"});
  };
  const Ended expected = train_ranks("whole", 1, of("whole"));
  for (const auto& [before, after] : {std::pair(3, 1), std::pair(2, 4), std::pair(1, 3)}) {
    const std::string run = fmt::format("{}-{}", before, after);
    EXPECT_ANY_THROW(train_until(run, before, of(run), 6));
    const Ended ended = train_ranks(run, after, of(run));
    EXPECT_EQ(ended.outcome.step, 8) << run;
    EXPECT_TRUE(ended.values == expected.values) << run;
  }
}

TEST_F(IslandLayouts, IslandsOfDifferentLayoutsEndWithOneModel) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    const auto of = [&](const std::vector<std::string>& layout) {
      return settings(kind.name, 2, kind, layout);
    };
    const std::vector<std::string> shared = of({"--parallel.tp=2", "--dp.zero=1"});
    const std::vector<std::string> staged = of({"--parallel.pp=2", "--parallel.schedule=zb-h1"});
    std::string first, second;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    {
      const Captured captured;
      std::thread other([&] { first = train_island(kind.name + "-shared", 4, shared); });
      second = train_island(kind.name + "-staged", 2, staged);
      other.join();
    }
    EXPECT_TRUE(first == second);
    EXPECT_FALSE(first.empty());
  }
}

}  // namespace
}  // namespace atl::train
