#include "atoll/train/ranks/ranks.h"

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using RanksTest = RanksFixture;

TEST_F(RanksTest, EveryZeroStageTrainsTheSame) {
  const std::vector<std::string> common = {"--train.batch_size=12", "--train.micro_batch=2",
                                           "--optim.clip=0.2", "--eval.every=7"};
  const Ended expected = train_ranks("zero0", 3, common);
  EXPECT_EQ(values_of(expected.records, "loss").size(), 20u);
  for (int zero = 1; zero <= 3; ++zero) {
    std::vector<std::string> overrides = common;
    overrides.push_back(fmt::format("--dp.zero={}", zero));
    overrides.push_back("--dp.bucket_mib=0.01");
    const Ended ended = train_ranks(fmt::format("zero{}", zero), 3, overrides);
    EXPECT_TRUE(ended.values == expected.values) << zero;
    for (const char* key : {"loss", "grad_norm", "held_out_loss"}) {
      EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << zero << key;
    }
  }
}

TEST_F(RanksTest, ExactRunsAreThoseOfOneRank) {
  const std::vector<std::string> common = {"--train.batch_size=8", "--train.micro_batch=2",
                                           "--train.exact=true", "--eval.every=10"};
  const Ended expected = train_ranks("one", 1, common);
  for (const int ranks : {2, 3, 4, 5}) {
    std::vector<std::string> overrides = common;
    overrides.push_back(fmt::format("--dp.zero={}", ranks % 4));
    const Ended ended = train_ranks(fmt::format("exact{}", ranks), ranks, overrides);
    EXPECT_TRUE(ended.values == expected.values) << ranks;
    EXPECT_EQ(values_of(ended.records, "held_out_loss"),
              values_of(expected.records, "held_out_loss"));
  }
}

TEST_F(RanksTest, ASignalToAnyRankStopsAllAfterTheSameStep) {
  const std::vector<std::string> common = {"--train.batch_size=8", "--train.exact=true"};
  const Ended expected = train_ranks("whole", 2, common);
  const Ended first = train_ranks("parts", 2, common, /*stop_after=*/7);
  EXPECT_EQ(first.outcome.signal, SIGTERM);
  EXPECT_EQ(first.outcome.step, 7);
  std::vector<std::string> sharded = common;
  const Ended second = train_ranks("parts", 2, sharded);
  EXPECT_TRUE(second.values == expected.values);
}

TEST_F(RanksTest, FourThenTwoThenThreeAreAnUninterruptedRun) {
  const std::vector<std::string> common = {"--train.batch_size=8", "--train.micro_batch=1",
                                           "--train.exact=true"};
  const auto with = [&](int zero) {
    std::vector<std::string> overrides = common;
    overrides.push_back(fmt::format("--dp.zero={}", zero));
    return overrides;
  };
  const Ended expected = train_ranks("whole", 1, common);
  EXPECT_EQ(train_ranks("parts", 4, with(3), /*stop_after=*/6).outcome.step, 6);
  EXPECT_EQ(train_ranks("parts", 2, with(1), /*stop_after=*/13).outcome.step, 13);
  const Ended ended = train_ranks("parts", 3, with(2));
  EXPECT_EQ(ended.outcome.step, 20);
  EXPECT_TRUE(ended.values == expected.values);
}

TEST_F(RanksTest, WhatDoesNotFitIsToldOnce) {
  const auto fails = [&](int ranks, std::vector<std::string> overrides) {
    return error_of([&] { train_ranks("bad", ranks, std::move(overrides)); }, ErrorKind::kUser);
  };
  EXPECT_THAT(fails(3, {}), AllOf(HasSubstr("2 micro-batches"), HasSubstr("each of 3 ranks"),
                                  HasSubstr("--train.micro_batch=1 or --train.batch_size=6")));
  EXPECT_THAT(fails(2, {"--dp.shard=1"}), HasSubstr("dp.zero = 0 shares nothing"));
  EXPECT_THAT(fails(3, {"--train.micro_batch=1", "--dp.zero=1", "--dp.shard=2"}),
              HasSubstr("dp.shard = 2"));
  EXPECT_THAT(fails(2, {"--dp.zero=1", "--dp.shard=1", "--train.exact=true"}),
              HasSubstr("train.exact"));
  EXPECT_THAT(fails(2, {"--data.text=/nowhere.txt"}), HasSubstr("/nowhere.txt"));
}

TEST(Balance, SlowerRanksTakeFewer) {
  EXPECT_THAT(balanced_shares(8, {1, 1}), ElementsAre(4, 4));
  EXPECT_THAT(balanced_shares(9, {1, 2}), ElementsAre(6, 3));
  EXPECT_THAT(balanced_shares(7, {4, 1, 2}), ElementsAre(1, 4, 2));
  EXPECT_THAT(balanced_shares(2, {1, 100}), ElementsAre(1, 1));
}

TEST(Balance, IsAgreedByAllAndOnlyWhenItPays) {
  comm::run_threads(2, {}, [](comm::World& world) {
    TrainConfig config;
    config.train.batch_size = 8;
    config.train.micro_batch = 1;
    config.dp.balance = true;
    Ranks ranks(world, config);
    const auto after = [&](double slow) {
      bool changed = false;
      for (int step = 0; step < 100; ++step) {
        const RankFacts mine = {.compute_seconds = world.rank() == 1 ? slow : 1.0};
        changed |= ranks.balance(ranks.gather(mine));
      }
      return changed;
    };
    EXPECT_FALSE(after(1.01));
    EXPECT_TRUE(after(3));
    EXPECT_EQ(ranks.plan().share(0), 6);
    EXPECT_EQ(ranks.plan().share(1), 2);
  });
}

}  // namespace
}  // namespace atl::train
