// Runs that mix tensor, pipeline and data-parallel ranks with ZeRO: stages and ZeRO change no bit;
// stopped, moved to other layouts, and read back.

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using HybridRun = RanksFixture;

const std::vector<std::string> kCommon = {
    "--train.batch_size=8", "--train.micro_batch=1",       "--optim.clip=0.2",    "--eval.every=6",
    "--train.steps=6",      "--model.num_hidden_layers=3", "--dp.bucket_mib=0.01"};

std::vector<std::string> with(const std::vector<std::string>& overrides, bool tied = false) {
  std::vector<std::string> all = kCommon;
  all.push_back(std::string("--model.tie_word_embeddings=") + (tied ? "true" : "false"));
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

std::vector<std::string> layout(int tp, int pp, int zero, const std::string& schedule = "1f1b") {
  return {fmt::format("--parallel.tp={}", tp), fmt::format("--parallel.pp={}", pp),
          fmt::format("--dp.zero={}", zero), "--parallel.schedule=" + schedule};
}

class SameBits : public HybridRun {
 protected:
  void expect_same(const Ended& ended, const Ended& expected) {
    EXPECT_TRUE(ended.values == expected.values);
    for (const char* key : {"loss", "grad_norm", "held_out_loss"}) {
      EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << key;
    }
  }
};

TEST_F(SameBits, HaveStagesAndZeroBesideSharedProducts) {
  const Ended expected = train_ranks("tp", 4, with(layout(2, 1, 0)));
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE(zero);
    expect_same(train_ranks(fmt::format("zero{}", zero), 8, with(layout(2, 2, zero))), expected);
  }
  expect_same(train_ranks("v", 8, with(layout(2, 2, 2, "zb-v"))), expected);
}

// As one rank's bits where nothing is tied; tied ends have those of any ZeRO stage.
TEST_F(SameBits, HaveZeroStagesOfPipelines) {
  const Ended expected = train_ranks("two", 2, with({}));
  const Ended tied = train_ranks("tied", 4, with(layout(1, 2, 0), true));
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    expect_same(train_ranks(fmt::format("zero{}", zero), 4, with(layout(1, 2, zero, "zb-h1"))),
                expected);
    expect_same(train_ranks(fmt::format("tied{}", zero), 4, with(layout(1, 2, zero), true)), tied);
  }
}

// Of each micro-batch the parts of its sequences, and then of the next: however many ranks have
// micro-batches, and where some have one fewer.
TEST_F(SameBits, HaveDataParallelRanksBesideSharedSequencesWithExactSums) {
  const auto exact = [](int zero) {
    return with({"--parallel.cp=2", "--train.exact=true", fmt::format("--dp.zero={}", zero)}, true);
  };
  const Ended expected = train_ranks("one", 2, exact(0));
  for (const auto& [ranks, zero] : {std::pair(4, 0), {6, 1}, {6, 3}, {8, 2}}) {
    SCOPED_TRACE(fmt::format("{} ranks, ZeRO {}", ranks, zero));
    expect_same(train_ranks(fmt::format("exact{}-{}", ranks, zero), ranks, exact(zero)), expected);
  }
}

TEST_F(SameBits, HasARunThatWasStoppedInItsLayout) {
  const Ended expected = train_ranks("whole", 8, with(layout(2, 2, 2), true));
  EXPECT_EQ(train_ranks("parts", 8, with(layout(2, 2, 2), true), 3).outcome.step, 3);
  EXPECT_TRUE(train_ranks("parts", 8, with(layout(2, 2, 2), true)).values == expected.values);
}

TEST_F(HybridRun, GoesOnInAnyLayout) {
  const Ended expected = train_ranks("one", 1, with({}, true));
  EXPECT_EQ(train_ranks("parts", 8, with(layout(2, 2, 1), true), 2).outcome.step, 2);
  EXPECT_EQ(train_ranks("parts", 1, with({}, true), 3).outcome.step, 3);
  EXPECT_EQ(train_ranks("parts", 6, with(layout(1, 3, 3), true), 4).outcome.step, 4);
  EXPECT_EQ(train_ranks("parts", 4, with(layout(4, 1, 0), true), 5).outcome.step, 5);
  const Ended ended = train_ranks("parts", 4, with(layout(2, 2, 0, "zb-v"), true));
  EXPECT_NEAR(values_of(ended.records, "loss").back(), values_of(expected.records, "loss").back(),
              2e-4);
}

// Ranks that have parts of sequences: the loss of one rank, documents and all; beside every other
// axis.
TEST_F(HybridRun, SharedSequencesHaveTheLossOfOneRank) {
  for (const char* packing : {"stream", "masked"}) {
    const std::vector<std::string> common = {"--train.dropout=0", "--model.num_key_value_heads=4",
                                             "--data.packing=" + std::string(packing)};
    const auto with_layout = [&](const std::vector<std::string>& more) {
      std::vector<std::string> all = common;
      all.insert(all.end(), more.begin(), more.end());
      return with(all, true);
    };
    const Ended expected = train_ranks(fmt::format("one-{}", packing), 1, with_layout({}));
    int number = 0;
    for (const auto& [ranks, more] : std::vector<std::pair<int, std::vector<std::string>>>{
             {2, {"--parallel.cp=2"}},
             {2, {"--parallel.cp=2", "--parallel.cp_attention=ring"}},
             {4, {"--parallel.cp=2", "--dp.zero=3"}},
             {4, {"--parallel.cp=2", "--parallel.tp=2"}},
             {4, {"--parallel.cp=2", "--parallel.pp=2", "--dp.zero=1"}}}) {
      const Ended ended =
          train_ranks(fmt::format("{}-{}", packing, number++), ranks, with_layout(more));
      for (const char* key : {"loss", "held_out_loss"}) {
        const std::vector<double> losses = values_of(ended.records, key);
        const std::vector<double> wanted = values_of(expected.records, key);
        ASSERT_EQ(losses.size(), wanted.size());
        for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 2e-4);
      }
    }
  }
}

// Three ranks, which 4 heads and 2 key-value heads cannot be shared by: keys go round a ring, with
// every setting that shared sequences go together with.
TEST_F(HybridRun, ARingOfAnyNumberOfRanksHasTheLossOfOneRank) {
  int number = 0;
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--train.dropout=0.1", "--data.packing=masked"},
           {"--train.dtype=bf16", "--train.dropout=0"},
           {"--train.recompute=full", "--train.dropout=0.1", "--optim.kind=muon"}}) {
    std::vector<std::string> one = {"--train.context=36"};
    one.insert(one.end(), more.begin(), more.end());
    std::vector<std::string> three = one;
    three.insert(three.end(), {"--parallel.cp=3", "--dp.zero=1"});
    SCOPED_TRACE(more.front());
    const Ended expected = train_ranks(fmt::format("one{}", number), 1, with(one, true));
    const Ended ended = train_ranks(fmt::format("three{}", number++), 3, with(three, true));
    const double tolerance = more.front() == "--train.dtype=bf16" ? 0.02 : 2e-4;
    for (const char* key : {"loss", "held_out_loss"}) {
      const std::vector<double> losses = values_of(ended.records, key);
      const std::vector<double> wanted = values_of(expected.records, key);
      ASSERT_EQ(losses.size(), wanted.size());
      for (std::size_t i = 0; i < losses.size(); ++i) {
        EXPECT_NEAR(losses[i], wanted[i], tolerance) << key << " " << i;
      }
    }
  }
}

// Values as the checkpoint has them, which any layout has written alike.
TEST_F(HybridRun, WritesWhatOneRankReads) {
  const Ended written = train_ranks("hybrid", 8, with(layout(2, 2, 3), true));
  const Ended read = train_ranks("hybrid", 1, with({}, true));  // all steps are taken
  EXPECT_EQ(read.outcome.step, 6);
  EXPECT_TRUE(read.values == written.values);
}

TEST_F(HybridRun, WhatDoesNotFitIsRefusedByName) {
  const auto fails = [&](int ranks, const std::vector<std::string>& overrides) {
    return error_of([&] { train_ranks("bad", ranks, with(overrides)); }, ErrorKind::kUser);
  };
  EXPECT_THAT(fails(6, layout(2, 2, 0)), HasSubstr("multiple of 4"));
  EXPECT_THAT(fails(4, {"--parallel.pp=2", "--train.exact=true"}), HasSubstr("train.exact"));
  EXPECT_THAT(fails(3, {"--parallel.cp=2"}), HasSubstr("parallel.cp = 2"));
  EXPECT_THAT(
      fails(3, {"--parallel.cp=3", "--train.context=33", "--parallel.cp_attention=ulysses"}),
      AllOf(HasSubstr("4 attention heads"), HasSubstr("parallel.cp_attention=ring")));
  EXPECT_THAT(fails(3, {"--parallel.cp=3", "--train.context=33"}),
              AllOf(HasSubstr("train.context = 33"), HasSubstr("--train.context=36")));
  EXPECT_THAT(fails(3, {"--parallel.cp=3", "--train.context=64"}), HasSubstr("--train.context=66"));
  EXPECT_THAT(fails(6, {"--parallel.cp=3", "--parallel.tp=2", "--train.context=9"}),
              HasSubstr("multiple of"));
  EXPECT_THAT(fails(2, {"--parallel.cp=2", "--train.context=31"}), HasSubstr("multiple of"));
}

}  // namespace
}  // namespace atl::train
