// Runs of gpt_oss, whose sinks and biases of experts other families do not have: every layout has
// the losses of one rank, and goes on from the files of another.

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

// Biases and sinks move far enough from where they start to matter.
const std::vector<std::string> kCommon = {"--model.family=gpt_oss",
                                          "--model.num_experts=4",
                                          "--model.intermediate_size=24",
                                          "--moe.balance_loss=0.05",
                                          "--moe.z_loss=0.01",
                                          "--train.batch_size=8",
                                          "--train.micro_batch=1",
                                          "--train.steps=6",
                                          "--optim.lr=0.01",
                                          "--optim.clip=0.2",
                                          "--model.initializer_range=0.1"};

class GptOssLayouts : public RanksFixture {
 protected:
  Ended run(const std::string& name, int ranks, std::vector<std::string> layout,
            std::int64_t stop_at = -1) {
    layout.insert(layout.begin(), kCommon.begin(), kCommon.end());
    return stop_at < 0 ? train_ranks(name, ranks, layout)
                       : train_ranks(name, ranks, layout, stop_at);
  }
  // Sums in another order, in f32 and over six steps.
  static void expect_close(const Ended& ended, const Ended& expected) {
    const std::vector<double> found = values_of(ended.records, "loss");
    const std::vector<double> wanted = values_of(expected.records, "loss");
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 2e-4) << i;
  }
};

TEST_F(GptOssLayouts, HaveTheLossesOfOneRank) {
  const Ended expected = run("one", 1, {});
  int number = 0;
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"--train.recompute=full"},
        {"--dp.zero=3"},
        {"--parallel.tp=2"},
        {"--parallel.ep=2"},
        {"--parallel.pp=2"},
        {"--parallel.cp=2", "--parallel.cp_attention=ulysses"},
        {"--parallel.cp=2", "--parallel.cp_attention=ring"}}) {
    SCOPED_TRACE(layout.back());
    expect_close(run(fmt::format("run{}", number++), 2, layout), expected);
  }
  expect_close(run("both", 4, {"--parallel.ep=2", "--parallel.tp=2"}), expected);
}

TEST_F(GptOssLayouts, GoOnFromTheFilesOfAnother) {
  const Ended expected = run("one", 1, {});
  EXPECT_EQ(run("parts", 4, {"--parallel.ep=2", "--parallel.tp=2"}, 2).outcome.step, 2);
  EXPECT_EQ(run("parts", 2, {"--dp.zero=2"}, 4).outcome.step, 4);
  expect_close(run("parts", 1, {}), expected);
}

}  // namespace
}  // namespace atl::train
