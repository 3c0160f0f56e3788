// Runs whose ranks have a row of the model's stages each: the bits of one rank, whatever the
// schedule; stopped and resumed, and moved to other ranks.

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using PipelineParallelRun = RanksFixture;

const std::vector<std::string> kCommon = {"--train.batch_size=8",
                                          "--train.micro_batch=2",
                                          "--optim.clip=0.2",
                                          "--eval.every=10",
                                          "--train.steps=12",
                                          "--model.num_hidden_layers=3",
                                          "--model.tie_word_embeddings=false"};

std::vector<std::string> with(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), kCommon.begin(), kCommon.end());
  return overrides;
}

// Four micro-batches a step on a pipeline alone.
TEST_F(PipelineParallelRun, HasTheBitsOfOneRank) {
  const Ended expected = train_ranks("one", 1, with({}));
  const auto same = [&](const std::string& schedule, int ranks) {
    SCOPED_TRACE(schedule);
    const Ended ended = train_ranks(
        schedule, ranks,
        with({fmt::format("--parallel.pp={}", ranks), "--parallel.schedule=" + schedule}));
    EXPECT_TRUE(ended.values == expected.values);
    for (const char* key : {"loss", "grad_norm", "held_out_loss"}) {
      EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << key;
    }
  };
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) same(schedule, 2);
  same("1f1b", 4);
}

// Two pipelines share a step's micro-batches as two ranks do that have the whole model.
TEST_F(PipelineParallelRun, TwoPipelinesHaveTheBitsOfTwoRanks) {
  const Ended expected = train_ranks("two", 2, with({}));
  const Ended ended = train_ranks("four", 4, with({"--parallel.pp=2"}));
  EXPECT_TRUE(ended.values == expected.values);
  for (const char* key : {"loss", "grad_norm", "held_out_loss"}) {
    EXPECT_EQ(values_of(ended.records, key), values_of(expected.records, key)) << key;
  }
}

// The same terms of the embedding's gradient in another order, and what 12 updates make of that.
TEST_F(PipelineParallelRun, TiedEmbeddingsAreSummed) {
  const Ended expected = train_ranks("one", 1, with({"--model.tie_word_embeddings=true"}));
  const Ended ended =
      train_ranks("pp", 3, with({"--model.tie_word_embeddings=true", "--parallel.pp=3"}));
  for (const char* key : {"loss", "grad_norm", "held_out_loss"}) {
    const std::vector<double> one = values_of(expected.records, key);
    const std::vector<double> three = values_of(ended.records, key);
    ASSERT_EQ(one.size(), three.size());
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(three[i], one[i], 2e-4) << key << i;
  }
  // Before the first update only the order of sums in the norm differs.
  EXPECT_EQ(values_of(ended.records, "loss").front(), values_of(expected.records, "loss").front());
}

TEST_F(PipelineParallelRun, StoppedGoesOnInAnyLayout) {
  const Ended expected = train_ranks("whole", 1, with({}));
  EXPECT_EQ(train_ranks("parts", 2, with({"--parallel.pp=2"}), 4).outcome.step, 4);
  EXPECT_EQ(train_ranks("parts", 1, with({}), 6).outcome.step, 6);
  EXPECT_EQ(train_ranks("parts", 3, with({"--parallel.pp=3", "--parallel.schedule=zb-h1"}), 9)
                .outcome.step,
            9);
  const Ended ended =
      train_ranks("parts", 2, with({"--parallel.pp=2", "--parallel.schedule=zb-v"}));
  EXPECT_TRUE(ended.values == expected.values);
}

TEST_F(PipelineParallelRun, WhatDoesNotFitIsRefusedByName) {
  const auto fails = [&](int ranks, std::vector<std::string> overrides) {
    return error_of([&] { train_ranks("bad", ranks, with(std::move(overrides))); },
                    ErrorKind::kUser);
  };
  EXPECT_THAT(fails(3, {"--parallel.pp=2"}),
              AllOf(HasSubstr("3 ranks"), HasSubstr("multiple of 2")));
  EXPECT_THAT(fails(2, {"--parallel.pp=2", "--train.exact=true"}), HasSubstr("train.exact"));
  EXPECT_THAT(fails(2, {"--parallel.pp=2", "--train.batch_size=2"}),
              HasSubstr("at least 2 micro-batches"));
  EXPECT_THAT(fails(2, {"--parallel.pp=2", "--parallel.chunks=2"}), HasSubstr("1 chunks a rank"));
}

}  // namespace
}  // namespace atl::train
