// Runs whose ranks share each product: the loss of one rank, in every mix with ZeRO; stopped and
// resumed, and moved to another number of ranks.

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using TensorParallelRun = RanksFixture;

const std::vector<std::string> kCommon = {"--train.batch_size=8", "--train.micro_batch=2",
                                          "--optim.clip=0.2", "--eval.every=10"};

std::vector<std::string> with(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), kCommon.begin(), kCommon.end());
  return overrides;
}

// Losses of 20 steps in f32: sums in another order, once a product, and what 20 updates make of
// that.
void expect_close(const std::vector<double>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 2e-4) << i;
}

TEST_F(TensorParallelRun, HasTheLossOfOneRank) {
  const Ended expected = train_ranks("one", 1, with({}));
  for (const int tp : {2, 4}) {
    const Ended ended =
        train_ranks(fmt::format("tp{}", tp), tp, with({fmt::format("--parallel.tp={}", tp)}));
    for (const char* key : {"loss", "held_out_loss"}) {
      expect_close(values_of(ended.records, key), values_of(expected.records, key));
    }
  }
}

TEST_F(TensorParallelRun, InBf16HasNearlyTheLossOfOneRank) {
  const Ended expected = train_ranks("one", 1, with({"--train.dtype=bf16"}));
  const Ended ended = train_ranks("two", 2, with({"--train.dtype=bf16", "--parallel.tp=2"}));
  const std::vector<double> losses = values_of(ended.records, "loss");
  const std::vector<double> wanted = values_of(expected.records, "loss");
  ASSERT_EQ(losses.size(), wanted.size());
  // Activations of 8 bits: each sum over ranks rounds once more, by 2^-9 of a loss of about 5.
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 0.02) << i;
}

TEST_F(TensorParallelRun, UnevenPartsReduceAtTheSameStages) {
  // Sizes around those by which stages are put together, cut unevenly.
  for (const char* intermediate : {"513", "517"}) {
    const std::vector<std::string> sizes = {
        "--model.intermediate_size=" + std::string(intermediate),
        "--data.vocab_size=301",
        "--train.steps=3",
        "--model.num_hidden_layers=3",
        "--eval.every=0",
        "--model.tie_word_embeddings=false"};
    for (const char* zero : {"0", "3"}) {
      std::vector<std::string> overrides = with(sizes);
      overrides.push_back("--parallel.tp=2");
      overrides.push_back("--dp.bucket_mib=0.13");
      overrides.push_back("--dp.zero=" + std::string(zero));
      const Ended ended = train_ranks(fmt::format("uneven{}-{}", intermediate, zero), 4, overrides);
      EXPECT_EQ(values_of(ended.records, "loss").size(), 3u);
    }
  }
}

TEST_F(TensorParallelRun, NoZeroStageChangesABit) {
  const Ended expected = train_ranks("zero0", 4, with({"--parallel.tp=2"}));
  for (int zero = 1; zero <= 3; ++zero) {
    const Ended ended = train_ranks(
        fmt::format("zero{}", zero), 4,
        with({"--parallel.tp=2", fmt::format("--dp.zero={}", zero), "--dp.bucket_mib=0.01"}));
    EXPECT_TRUE(ended.values == expected.values) << zero;
    for (const char* key : {"loss", "grad_norm", "held_out_loss"}) {
      EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << zero << key;
    }
  }
}

TEST_F(TensorParallelRun, ExactSumsDoNotSeeDataParallelRanks) {
  const Ended expected = train_ranks("one", 2, with({"--parallel.tp=2", "--train.exact=true"}));
  const Ended ended =
      train_ranks("three", 6, with({"--parallel.tp=2", "--train.exact=true", "--dp.zero=3"}));
  EXPECT_TRUE(ended.values == expected.values);
}

TEST_F(TensorParallelRun, StoppedAndResumedIsTheSame) {
  const Ended expected = train_ranks("whole", 4, with({"--parallel.tp=2", "--dp.zero=1"}));
  const Ended first = train_ranks("parts", 4, with({"--parallel.tp=2", "--dp.zero=1"}), 7);
  EXPECT_EQ(first.outcome.step, 7);
  const Ended second = train_ranks("parts", 4, with({"--parallel.tp=2", "--dp.zero=1"}));
  EXPECT_TRUE(second.values == expected.values);
}

TEST_F(TensorParallelRun, GoesOnWithOtherRanks) {
  const Ended expected = train_ranks("whole", 1, with({}));
  EXPECT_EQ(train_ranks("parts", 2, with({"--parallel.tp=2"}), 6).outcome.step, 6);
  EXPECT_EQ(train_ranks("parts", 4, with({"--parallel.tp=4"}), 11).outcome.step, 11);
  EXPECT_EQ(train_ranks("parts", 1, with({}), 15).outcome.step, 15);
  const Ended ended = train_ranks("parts", 4, with({"--parallel.tp=2", "--dp.zero=3"}));
  const std::vector<double> losses = values_of(expected.records, "loss");
  EXPECT_NEAR(values_of(ended.records, "loss").back(), losses.back(), 2e-4);
}

// Adapters of shared products and of stages: the loss of one rank, the same bits in a layout
// whether stopped or not, one file that any layout goes on from, and only beside the weights that
// they began with.
TEST_F(TensorParallelRun, TrainsAdapters) {
  const std::filesystem::path base = train_ranks("base", 1, with({})).outcome.checkpoint;
  const std::filesystem::path other =
      train_ranks("other", 1, with({"--train.steps=3"})).outcome.checkpoint;
  inline_model_ = false;
  const auto lora = [&](const std::string& name, int ranks, std::vector<std::string> more,
                        std::int64_t stop_after = -1, const std::filesystem::path& from = {}) {
    more.insert(more.end(), {"--model.from=" + (from.empty() ? base : from).string(),
                             "--data.tokenizer=" + base.string(), "--lora.rank=3",
                             "--optim.lr=0.01", "--train.dropout=0"});
    return train_ranks(name, ranks, with(std::move(more)), stop_after);
  };
  const std::vector<std::string> shared = {"--parallel.tp=2", "--dp.zero=2"};
  const Ended alone = lora("alone", 1, {});
  const Ended expected = lora("shared", 4, shared);
  for (const char* key : {"loss", "held_out_loss"}) {
    expect_close(values_of(expected.records, key), values_of(alone.records, key));
  }
  // A pipeline's stages have one rank's bits; two of them beside shared products nearly.
  const Ended pipeline = lora("pipeline", 2, {"--parallel.pp=2"});
  EXPECT_EQ(values_of(pipeline.records, "loss"), values_of(alone.records, "loss"));
  EXPECT_TRUE(pipeline.values == alone.values);
  expect_close(
      values_of(lora("both", 8, {"--parallel.pp=2", "--parallel.tp=2", "--dp.zero=3"}).records,
                "loss"),
      values_of(alone.records, "loss"));
  lora("parts", 4, shared, 7);
  EXPECT_TRUE(lora("parts", 4, shared).values == expected.values);

  expect_close(values_of(lora("four", 4, {"--parallel.tp=4"}).records, "loss"),
               values_of(alone.records, "loss"));
  lora("moved", 4, {"--parallel.tp=4"}, 4);
  lora("moved", 4, {"--parallel.tp=2", "--parallel.pp=2"}, 6);
  EXPECT_THAT(error_of(
                  [&] {
                    lora("moved", 4, {"--parallel.tp=2", "--parallel.pp=2"}, 8, other);
                  },
                  ErrorKind::kUser),
              HasSubstr(other.string()));
  EXPECT_EQ(lora("moved", 1, {}, 12).outcome.step, 12);
  expect_close(values_of(lora("moved", 2, {"--parallel.tp=2"}).records, "loss"),
               values_of(alone.records, "loss"));
}

// Its matrices are put together from all ranks that have parts of them.
TEST_F(TensorParallelRun, MuonHasTheLossOfOneRank) {
  const std::vector<std::string> muon = {"--optim.kind=muon", "--optim.lr=0.003"};
  const auto of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = muon;
    all.insert(all.end(), more.begin(), more.end());
    return with(std::move(all));
  };
  const Ended expected = train_ranks("one", 1, of({}));
  // Orthogonalising makes more of a rounding than other updates do.
  const auto expect_near = [&](const Ended& ended) {
    const std::vector<double> losses = values_of(ended.records, "loss");
    const std::vector<double> wanted = values_of(expected.records, "loss");
    ASSERT_EQ(losses.size(), wanted.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 2e-3) << i;
  };
  expect_near(train_ranks("four", 4, of({"--parallel.tp=4"})));
  const Ended two = train_ranks("two", 4, of({"--parallel.tp=2"}));
  expect_near(two);
  for (const int zero : {1, 3}) {
    const std::string name = fmt::format("zero{}", zero);
    const std::vector<std::string> layout = {"--parallel.tp=2", fmt::format("--dp.zero={}", zero)};
    train_ranks(name, 4, of(layout), 9);  // and resumed
    EXPECT_TRUE(train_ranks(name, 4, of(layout)).values == two.values) << zero;
  }
  expect_near(train_ranks("stages", 8, of({"--parallel.tp=2", "--parallel.pp=2", "--dp.zero=1"})));
}

// Ranks draw by an element's place in the whole model: those that hold the same round it alike,
// which comm.check_every compares, and stages round as one rank does.
TEST_F(TensorParallelRun, RoundsStochasticallyAsOneRankDoes) {
  const auto of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--train.dtype=bf16", "--optim.masters=stochastic",
                                    "--model.tie_word_embeddings=false", "--comm.check_every=1"};
    all.insert(all.end(), more.begin(), more.end());
    return with(std::move(all));
  };
  const Ended expected = train_ranks("one", 1, of({}));
  const Ended stages = train_ranks("stages", 2, of({"--parallel.pp=2"}));
  EXPECT_TRUE(stages.values == expected.values);
  EXPECT_EQ(values_of(stages.records, "loss"), values_of(expected.records, "loss"));
  EXPECT_TRUE(train_ranks("data", 4, of({"--parallel.pp=2", "--dp.zero=3"})).values ==
              train_ranks("plain", 2, of({})).values);
  const Ended two = train_ranks("two", 4, of({"--parallel.tp=2"}));
  const std::vector<double> losses = values_of(two.records, "loss");
  const std::vector<double> wanted = values_of(expected.records, "loss");
  ASSERT_EQ(losses.size(), wanted.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 0.03) << i;
  EXPECT_TRUE(train_ranks("zero", 4, of({"--parallel.tp=2", "--dp.zero=2"})).values == two.values);
}

TEST_F(TensorParallelRun, WhatDoesNotFitIsRefusedByName) {
  const auto fails = [&](int ranks, std::vector<std::string> overrides) {
    return error_of([&] { train_ranks("bad", ranks, with(std::move(overrides))); },
                    ErrorKind::kUser);
  };
  EXPECT_THAT(fails(3, {"--parallel.tp=2"}),
              AllOf(HasSubstr("3 ranks"), HasSubstr("multiple of 2")));
  EXPECT_THAT(fails(3, {"--parallel.tp=3", "--train.context=33"}), HasSubstr("4 attention heads"));
  EXPECT_THAT(fails(2, {"--parallel.tp=2", "--train.context=31"}), HasSubstr("multiple of"));
  EXPECT_THAT(fails(4, {"--parallel.tp=2", "--train.batch_size=2", "--train.micro_batch=2"}),
              HasSubstr("2 data-parallel ranks"));
  EXPECT_THAT(fails(2, {"--parallel.tp=2", "--train.dtype=bf16", "--optim.masters=stochastic",
                        "--optim.kind=muon"}),
              HasSubstr("optim.masters"));
}

}  // namespace
}  // namespace atl::train
