// Runs whose ranks share the experts of a model: they have the losses of one rank, go on in any
// layout, evaluate whatever the number of batches, and refuse what does not go together.

#include <sstream>

#include "atoll/train/model/options.h"
#include "atoll/train/ranks/ranks_testing.h"
#include "atoll/train/step/evaluate.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A batch of eight micro-batches; the router's losses and a capacity go by these.
const std::vector<std::string> kCommon = {
    "--model.family=qwen3_moe", "--model.num_experts=4", "--model.moe_intermediate_size=16",
    "--moe.balance_loss=0.05",  "--moe.z_loss=0.01",     "--train.batch_size=8",
    "--train.micro_batch=1",    "--train.steps=6",       "--eval.every=3",
    "--optim.clip=0.2",         "--dp.bucket_mib=0.01",  "--model.initializer_range=0.1"};

std::vector<std::string> with(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), kCommon.begin(), kCommon.end());
  return overrides;
}

class ExpertParallelRun : public RanksFixture {
 protected:
  // Sums in another order, in f32 and over six steps; loads are counts.
  void expect_close(const Ended& ended, const Ended& expected, double tolerance = 2e-4) {
    for (const char* key : {"loss", "held_out_loss", "balance_loss"}) {
      const std::vector<double> found = values_of(ended.records, key);
      const std::vector<double> wanted = values_of(expected.records, key);
      ASSERT_EQ(found.size(), wanted.size()) << key;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], wanted[i], tolerance) << key << " " << i;
      }
    }
  }
  void expect_same(const Ended& ended, const Ended& expected) {
    EXPECT_TRUE(ended.values == expected.values);
    for (const char* key : {"loss", "grad_norm", "held_out_loss", "expert_load_most"}) {
      EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << key;
    }
  }
};

TEST_F(ExpertParallelRun, HasTheLossesOfOneRank) {
  for (const char* capacity : {"0", "1.1"}) {
    const auto run = [&](int ranks, std::vector<std::string> layout) {
      layout.push_back("--moe.capacity_factor=" + std::string(capacity));
      static int number = 0;
      return train_ranks(fmt::format("run{}", number++), ranks, with(std::move(layout)));
    };
    const Ended expected = run(1, {});
    expect_close(run(2, {"--parallel.ep=2"}), expected);
    expect_close(run(4, {"--parallel.ep=4", "--train.recompute=full"}), expected);
    expect_close(run(4, {"--parallel.ep=2", "--dp.zero=3"}), expected);
    expect_close(run(4, {"--parallel.ep=2", "--parallel.pp=2", "--parallel.schedule=zb-h1"}),
                 expected);
    expect_close(run(4, {"--parallel.ep=2", "--parallel.tp=2"}), expected);
    expect_close(run(8, {"--parallel.ep=2", "--parallel.tp=2", "--parallel.pp=2"}), expected);
    expect_close(run(8, {"--parallel.ep=2", "--parallel.tp=2", "--dp.zero=3"}), expected);
  }
}

// Beside parts of sequences, which a capacity does not go together with.
TEST_F(ExpertParallelRun, HasTheLossesOfOneRankWithSharedSequences) {
  const Ended expected = train_ranks("one", 1, with({}));
  int number = 0;
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"--parallel.cp=2"},
        {"--parallel.cp=2", "--parallel.cp_attention=ring", "--parallel.pp=2"},
        {"--parallel.cp=2", "--parallel.tp=2"},
        {"--parallel.cp=2", "--dp.zero=2"},
        {"--parallel.cp=2", "--dp.zero=1", "--dp.shard=1"}}) {
    std::vector<std::string> all = layout;
    all.push_back("--parallel.ep=2");
    expect_close(train_ranks(fmt::format("run{}", number), number == 0 ? 4 : 8, with(all)),
                 expected);
    ++number;
  }
}

TEST_F(ExpertParallelRun, StagesZeroAndRecomputeChangeNoBit) {
  const std::string own_head = "--model.tie_word_embeddings=false";
  const Ended expected = train_ranks("zero0", 4, with({own_head, "--parallel.ep=2"}));
  for (const char* zero : {"1", "2", "3"}) {
    SCOPED_TRACE(zero);
    const std::string stage = "--dp.zero=" + std::string(zero);
    expect_same(train_ranks(fmt::format("zero{}", zero), 4,
                            with({own_head, "--parallel.ep=2", stage, "--train.recompute=full"})),
                expected);
    expect_same(train_ranks(fmt::format("pp{}", zero), 8,
                            with({own_head, "--parallel.ep=2", "--parallel.pp=2", stage})),
                expected);
  }
  expect_same(
      train_ranks("copies", 4, with({own_head, "--parallel.ep=2", "--dp.zero=1", "--dp.shard=1"})),
      expected);
}

// What ranks hold alike they hold bit for bit, along either axis: comm.check_every compares it.
TEST_F(ExpertParallelRun, ZeroAndStagesChangeNoBitBesideSharedProductsAndSequences) {
  for (const char* other : {"--parallel.tp=2", "--parallel.cp=2"}) {
    const auto of = [&](std::vector<std::string> more) {
      more.insert(more.end(), {"--model.tie_word_embeddings=false", "--comm.check_every=1",
                               "--parallel.ep=2", other});
      return with(std::move(more));
    };
    const std::string name(other + 11, 2);
    const Ended expected = train_ranks(name, 8, of({}));
    for (const char* zero : {"1", "3"}) {
      expect_same(train_ranks(name + zero, 8, of({"--dp.zero=" + std::string(zero)})), expected);
    }
    const Ended four = train_ranks(name + "four", 4, of({}));
    expect_same(train_ranks(name + "staged", 8, of({"--parallel.pp=2"})), four);
  }
}

TEST_F(ExpertParallelRun, StoppedGoesOnInItsLayoutWithTheSameBits) {
  int number = 0;
  for (const char* other : {"--dp.zero=2", "--parallel.tp=2", "--parallel.cp=2"}) {
    const std::string whole = fmt::format("whole{}", number),
                      parts = fmt::format("parts{}", number);
    ++number;
    const std::vector<std::string> layout = with({"--parallel.ep=2", other});
    const Ended expected = train_ranks(whole, 4, layout);
    EXPECT_EQ(train_ranks(parts, 4, layout, 3).outcome.step, 3);
    EXPECT_TRUE(train_ranks(parts, 4, layout).values == expected.values) << other;
  }
}

TEST_F(ExpertParallelRun, StoppedGoesOnInAnyLayout) {
  for (const char* kind : {"adamw", "muon"}) {
    SCOPED_TRACE(kind);
    const auto of = [&](std::vector<std::string> layout) {
      layout.push_back("--optim.kind=" + std::string(kind));
      return with(std::move(layout));
    };
    const std::string one = std::string(kind) + "-one", parts = std::string(kind) + "-parts";
    const Ended expected = train_ranks(one, 1, of({}));
    const auto up_to = [&](std::int64_t step, int ranks, std::vector<std::string> layout) {
      EXPECT_EQ(train_ranks(parts, ranks, of(std::move(layout)), step).outcome.step, step);
    };
    up_to(1, 8, {"--parallel.ep=2", "--parallel.tp=2", "--dp.zero=1"});
    up_to(2, 4, {"--parallel.ep=4"});
    up_to(4, 4, {"--parallel.ep=2", "--parallel.cp=2"});
    up_to(5, 8, {"--parallel.ep=2", "--parallel.pp=2", "--dp.zero=1"});
    expect_close(train_ranks(parts, 1, of({})), expected);
  }
}

// Those that hold the same round it alike, which comm.check_every compares.
TEST_F(ExpertParallelRun, RoundsStochastically) {
  const auto of = [](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--train.dtype=bf16", "--optim.masters=stochastic",
                                    "--comm.check_every=1"};
    all.insert(all.end(), more.begin(), more.end());
    return with(std::move(all));
  };
  const Ended ended = train_ranks("four", 4, of({"--parallel.ep=2"}));
  expect_close(ended, train_ranks("one", 1, of({})), 0.05);
  EXPECT_TRUE(train_ranks("zero", 4, of({"--parallel.ep=2", "--dp.zero=2"})).values ==
              ended.values);
}

TEST_F(ExpertParallelRun, TrainsInBf16) {
  const Ended expected = train_ranks("one", 1, with({"--train.dtype=bf16"}));
  const Ended ended = train_ranks("four", 4, with({"--train.dtype=bf16", "--parallel.ep=2"}));
  // Ranks round what they send; tokens near a tie go elsewhere.
  expect_close(ended, expected, 0.05);
}

// Of the ranks that share experts, some have no batch in the last turn, or none at all.
TEST_F(ExpertParallelRun, EvaluatesAnyNumberOfBatches) {
  for (const char* tokens : {"1", "33", "65", "129"}) {
    SCOPED_TRACE(tokens);
    const std::string name = "tokens" + std::string(tokens);
    const std::vector<std::string> common = {"--train.steps=3",
                                             "--eval.max_tokens=" + std::string(tokens)};
    const auto of = [&](const std::string& layout) {
      std::vector<std::string> all = common;
      std::istringstream words(layout);
      for (std::string word; words >> word;) all.push_back(word);
      return with(std::move(all));
    };
    const Ended expected = train_ranks(name, 1, of(""));
    expect_close(train_ranks(name + "-2x2", 4, of("--parallel.ep=2")), expected);
    expect_close(train_ranks(name + "-4", 4, of("--parallel.ep=4")), expected);
    expect_close(train_ranks(name + "-tp", 8, of("--parallel.ep=2 --parallel.tp=2")), expected);
    expect_close(train_ranks(name + "-cp", 8, of("--parallel.ep=2 --parallel.cp=2")), expected);
  }
}

// A batch that leaves a group without micro-batches in the last round, but no rank of a group
// alone.
TEST_F(ExpertParallelRun, GroupsMayHaveUnevenShares) {
  const auto of = [&](std::vector<std::string> layout) {
    layout.push_back("--train.batch_size=6");
    return with(std::move(layout));
  };
  const Ended expected = train_ranks("one", 1, of({}));
  for (const char* zero : {"0", "3"}) {
    expect_close(train_ranks("four" + std::string(zero), 4,
                             of({"--parallel.ep=2", "--dp.zero=" + std::string(zero)})),
                 expected);
  }
}

// What a rank keeps of experts, and so of rows for them, is what its settings make it plan.
TEST_F(ExpertParallelRun, PlansForAnEvenShareOfTheExperts) {
  const auto planned = [&](std::vector<std::string> overrides, int ranks, int rank) {
    TrainConfig config;
    Settings settings = make_settings(config);
    configure_ranks(config, settings, "planned", with(std::move(overrides)));
    TrainState state(state_options(config, 300, -1, ranks, rank));
    return std::pair(state.memory().total_bytes(), state.store().flat().shape.num_elements());
  };
  const auto whole = planned({}, 1, 0);
  const auto first = planned({"--parallel.ep=2"}, 2, 0);
  // Two blocks of four experts of three 32 x 16 matrices: half of them.
  EXPECT_EQ(whole.second - first.second, 2 * 2 * 3 * 32 * 16);
  EXPECT_EQ(planned({"--parallel.ep=2"}, 2, 1), first);
  // And half of each of these.
  const auto half = planned({"--parallel.tp=2"}, 2, 0);
  const auto quarter = planned({"--parallel.ep=2", "--parallel.tp=2"}, 4, 0);
  EXPECT_EQ(half.second - quarter.second, 2 * 2 * 3 * 32 * 16 / 2);
  // A capacity bounds what is planned, for evaluations too, which take all.
  const std::vector<std::string> tight = {"--parallel.ep=2", "--moe.capacity_factor=1"};
  EXPECT_LT(planned(tight, 2, 0).first, first.first);
}

TEST_F(ExpertParallelRun, WhatDoesNotGoTogetherIsRefusedByName) {
  const auto refusal = [&](int ranks, const std::vector<std::string>& overrides) {
    return error_of([&] { train_ranks("refused", ranks, with(overrides)); }, ErrorKind::kUser);
  };
  EXPECT_THAT(refusal(4, {"--parallel.ep=2", "--parallel.cp=2", "--moe.capacity_factor=1"}),
              AllOf(HasSubstr("parallel.cp = 2"), HasSubstr("moe.capacity_factor")));
  EXPECT_THAT(refusal(2, {"--parallel.ep=2", "--train.exact=true"}), HasSubstr("train.exact"));
  EXPECT_THAT(refusal(2, {"--parallel.ep=2", "--dp.balance=true"}), HasSubstr("dp.balance"));
  EXPECT_THAT(refusal(3, {"--parallel.ep=2"}),
              AllOf(HasSubstr("parallel.ep = 2"), HasSubstr("multiple of 2")));
  EXPECT_THAT(refusal(3, {"--parallel.ep=3", "--train.batch_size=9"}),
              AllOf(HasSubstr("parallel.ep = 3"), HasSubstr("divisor of 4")));
  EXPECT_THAT(error_of([&] { train_ranks("refused", 2, {"--parallel.ep=2"}); }, ErrorKind::kUser),
              AllOf(HasSubstr("parallel.ep = 2"), HasSubstr("has no experts")));
  EXPECT_THAT(refusal(2, {"--parallel.ep=2", "--train.batch_size=7"}),
              AllOf(HasSubstr("parallel.ep = 2"), HasSubstr("--train.batch_size=8")));
  EXPECT_THAT(refusal(2, {"--parallel.ep=2", "--parallel.layout=auto"}), HasSubstr("parallel.ep"));
  inline_model_ = false;
  EXPECT_THAT(refusal(2, {"--parallel.ep=2", "--lora.rank=2", "--model.from=nowhere",
                          "--model.family", "--model.num_experts", "--model.moe_intermediate_size",
                          "--model.initializer_range"}),
              AllOf(HasSubstr("parallel.ep"), HasSubstr("lora.rank")));
}

}  // namespace
}  // namespace atl::train
