// Runs of models with experts: what ranks share changes no bit, stopped runs go on, the load of
// experts is reported, and what does not go together is refused.

#include "atoll/model_dir/adapter.h"
#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;

using ExpertsRun = RanksFixture;

// Capacity, and both losses of the router: all that depends on the tokens of a micro-batch.
const std::vector<std::string> kCommon = {"--model.family=mixtral",
                                          "--model.num_experts=4",
                                          "--model.intermediate_size=24",
                                          "--moe.balance_loss=0.05",
                                          "--moe.z_loss=0.01",
                                          "--moe.capacity_factor=1.1",
                                          "--train.batch_size=8",
                                          "--train.steps=8",
                                          "--eval.every=4",
                                          "--model.num_hidden_layers=3",
                                          "--model.initializer_range=0.3"};

std::vector<std::string> with(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), kCommon.begin(), kCommon.end());
  return overrides;
}

const char* const kNumbers[] = {"loss",
                                "grad_norm",
                                "held_out_loss",
                                "expert_load_most",
                                "expert_load_least",
                                "expert_dropped_fraction"};

TEST_F(ExpertsRun, NeitherZeroNorRecomputeChangesABit) {
  const Ended expected = train_ranks("one", 1, with({"--train.exact=true"}));
  const auto same = [&](const std::string& name, int ranks, std::vector<std::string> overrides) {
    SCOPED_TRACE(name);
    const Ended ended = train_ranks(name, ranks, with(std::move(overrides)));
    EXPECT_TRUE(ended.values == expected.values);
    for (const char* key : kNumbers) {
      EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << key;
    }
  };
  for (const char* zero : {"0", "1", "2", "3"}) {
    same(fmt::format("zero-{}", zero), 2,
         {"--train.exact=true", fmt::format("--dp.zero={}", zero)});
  }
  same("recompute", 1, {"--train.exact=true", "--train.recompute=full"});
  same("selective", 1, {"--train.exact=true", "--train.recompute=selective"});
}

TEST_F(ExpertsRun, APipelineHasTheBitsOfOneRank) {
  const std::string own_head = "--model.tie_word_embeddings=false";
  const Ended expected = train_ranks("one", 1, with({own_head}));
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    const Ended ended = train_ranks(
        schedule, 3,
        with({own_head, "--parallel.pp=3", fmt::format("--parallel.schedule={}", schedule)}));
    EXPECT_TRUE(ended.values == expected.values);
    for (const char* key : kNumbers) {
      EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << key;
    }
  }
}

TEST_F(ExpertsRun, PipelinesThatShareParametersHaveTheBitsOfTwoRanks) {
  const std::string own_head = "--model.tie_word_embeddings=false";
  const Ended expected = train_ranks("two", 2, with({own_head}));
  const Ended ended = train_ranks("four", 4, with({own_head, "--parallel.pp=2", "--dp.zero=3"}));
  EXPECT_TRUE(ended.values == expected.values);
  for (const char* key : kNumbers) {
    EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << key;
  }
}

TEST_F(ExpertsRun, ReportsItsLoad) {
  const Ended ended = train_ranks("one", 1, with({}));
  EXPECT_THAT(values_of(ended.records, "expert_load_most"), AllOf(testing::SizeIs(8), Each(Ge(1))));
  EXPECT_THAT(values_of(ended.records, "expert_dropped_fraction"), testing::Contains(Ge(0.001)));
  EXPECT_THAT(values_of(ended.records, "balance_loss"), Each(Ge(1)));
  const Ended roomy = train_ranks("roomy", 1, with({"--moe.capacity_factor=0"}));
  EXPECT_THAT(values_of(roomy.records, "expert_dropped_fraction"), Each(0));
  EXPECT_NE(roomy.values, ended.values);
}

// Ranks that have a share of every expert, and ranks that have parts of the sequences: the losses
// of one rank, the router's too, and a checkpoint that any other goes on from.
TEST_F(ExpertsRun, SharedProductsAndSequencesHaveTheLossesOfOneRank) {
  const std::vector<std::string> roomy = {"--moe.capacity_factor=0", "--train.dropout=0",
                                          "--moe.balance_loss=0.1", "--moe.z_loss=0.01"};
  const auto of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), roomy.begin(), roomy.end());
    return with(std::move(more));
  };
  const Ended expected = train_ranks("one", 1, of({}));
  int number = 0;
  for (const auto& [ranks, layout] : std::vector<std::pair<int, std::vector<std::string>>>{
           {2, {"--parallel.tp=2"}},
           {4, {"--parallel.tp=2", "--dp.zero=3"}},
           {2, {"--parallel.cp=2"}},
           {4, {"--parallel.cp=2", "--parallel.tp=2", "--dp.zero=1"}},
           {4, {"--parallel.cp=2", "--parallel.pp=2"}}}) {
    SCOPED_TRACE(layout.front());
    const Ended ended = train_ranks(fmt::format("shared{}", number++), ranks, of(layout));
    for (const char* key : {"loss", "balance_loss", "router_z_loss", "held_out_loss"}) {
      const std::vector<double> found = values_of(ended.records, key);
      const std::vector<double> wanted = values_of(expected.records, key);
      ASSERT_EQ(found.size(), wanted.size()) << key;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(found[i], wanted[i], 5e-4 * std::max(1.0, wanted[i])) << key << " " << i;
      }
    }
  }
  EXPECT_EQ(train_ranks("parts", 2, of({"--parallel.tp=2"}), 3).outcome.step, 3);
  EXPECT_EQ(train_ranks("parts", 2, of({"--parallel.cp=2"}), 5).outcome.step, 5);
  EXPECT_NEAR(values_of(train_ranks("parts", 1, of({})).records, "loss").back(),
              values_of(expected.records, "loss").back(), 5e-4);
}

TEST_F(ExpertsRun, TrainsInBf16) {
  const std::vector<double> wide = values_of(train_ranks("f32", 1, with({})).records, "loss");
  const std::vector<double> narrow =
      values_of(train_ranks("bf16", 1, with({"--train.dtype=bf16"})).records, "loss");
  ASSERT_EQ(narrow.size(), wide.size());
  // Weights and activations with 8 bits, some thirty roundings deep; tokens near a tie go
  // elsewhere.
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], 0.05 * wide[i]);
}

TEST_F(ExpertsRun, ABalanceLossEvensTheLoad) {
  const auto last_loss = [&](const char* name, const char* weight) {
    const Ended ended =
        train_ranks(name, 1,
                    with({"--moe.capacity_factor=0", fmt::format("--moe.balance_loss={}", weight),
                          "--train.steps=30", "--moe.z_loss=0"}));
    return values_of(ended.records, "balance_loss").back();
  };
  EXPECT_LT(last_loss("with", "1"), last_loss("without", "0"));
}

TEST_F(ExpertsRun, StoppedGoesOnInAnyLayout) {
  const std::vector<std::string> family = {"--model.family=qwen3_moe",
                                           "--model.moe_intermediate_size=16", "--train.exact=true",
                                           "--optim.kind=muon"};
  const auto layout = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), family.begin(), family.end());
    return with(std::move(overrides));
  };
  const Ended expected = train_ranks("whole", 1, layout({}));
  EXPECT_EQ(train_ranks("parts", 2, layout({"--dp.zero=3"}), 3).outcome.step, 3);
  EXPECT_EQ(train_ranks("parts", 1, layout({}), 5).outcome.step, 5);
  EXPECT_TRUE(train_ranks("parts", 3, layout({"--dp.zero=1"})).values == expected.values);
}

TEST_F(ExpertsRun, LoraLeavesExpertsAndRouterAlone) {
  const fs::path base = train_ranks("base", 1, with({"--train.steps=3"})).outcome.checkpoint;
  inline_model_ = false;
  const TrainOutcome outcome =
      train("adapter", {"--model.from=" + base.string(), "--lora.rank=2", "--train.steps=3"});
  const ckpt::SafetensorsFile adapter(outcome.checkpoint / model_dir::kAdapterWeightsFile);
  for (const ckpt::SafetensorsEntry& entry : adapter.entries()) {
    EXPECT_THAT(entry.name, HasSubstr("self_attn"));
  }
  EXPECT_FALSE(adapter.entries().empty());
  EXPECT_THROW(
      train("refused", {"--model.from=" + base.string(), "--lora.rank=2", "--lora.targets=w1"}),
      Error);
}

TEST_F(ExpertsRun, WhatDoesNotGoTogetherIsRefusedByName) {
  const auto refusal = [&](int ranks, const std::vector<std::string>& overrides) {
    return error_of([&] { train_ranks("refused", ranks, overrides); }, ErrorKind::kUser);
  };
  EXPECT_THAT(refusal(2, with({"--parallel.cp=2"})),
              AllOf(HasSubstr("parallel.cp = 2"), HasSubstr("moe.capacity_factor")));
  for (const char* key : {"moe.balance_loss", "moe.z_loss", "moe.capacity_factor"}) {
    EXPECT_THAT(refusal(1, {fmt::format("--{}=0.5", key)}),
                AllOf(HasSubstr(key), HasSubstr("has no experts")));
  }
  EXPECT_THAT(refusal(1, with({"--moe.balance_loss=-0.5"})), HasSubstr("moe.balance_loss"));
  EXPECT_THAT(refusal(1, {"--model.num_experts=4"}),
              HasSubstr("mixtral, qwen3_moe, gpt_oss, deepseek_v2 or deepseek_v3"));
  EXPECT_THAT(refusal(1, with({"--model.norm_topk_prob=false"})), HasSubstr("qwen3_moe"));
  EXPECT_THAT(refusal(1, with({"--model.num_experts_per_tok=5"})),
              HasSubstr("\"num_experts_per_tok\" is 5"));
}

}  // namespace
}  // namespace atl::train
