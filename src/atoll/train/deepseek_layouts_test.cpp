// Runs of DeepSeek's families, whose latent attention, shared experts and routers others do not
// have: every layout has the losses of one rank, and goes on from the files of another.

#include "atoll/train/ranks/ranks_testing.h"

namespace atl::train {
namespace {

const std::vector<std::string> kCommon = {"--model.num_experts=4",
                                          "--model.head_dim=12",
                                          "--model.intermediate_size=24",
                                          "--moe.balance_loss=0.05",
                                          "--moe.z_loss=0.01",
                                          "--train.batch_size=8",
                                          "--train.micro_batch=1",
                                          "--train.steps=5",
                                          "--optim.lr=0.01",
                                          "--optim.clip=0.2",
                                          "--model.initializer_range=0.1"};

class DeepseekLayouts : public RanksFixture {
 protected:
  Ended run(const std::string& name, const char* family, int ranks, std::vector<std::string> layout,
            std::int64_t stop_at = -1) {
    layout.insert(layout.begin(), kCommon.begin(), kCommon.end());
    layout.push_back(std::string("--model.family=") + family);
    return stop_at < 0 ? train_ranks(name, ranks, layout)
                       : train_ranks(name, ranks, layout, stop_at);
  }
  // Sums in another order, in f32 and over five steps.
  static void expect_close(const Ended& ended, const Ended& expected) {
    const std::vector<double> found = values_of(ended.records, "loss");
    const std::vector<double> wanted = values_of(expected.records, "loss");
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 2e-4) << i;
  }
};

TEST_F(DeepseekLayouts, OfV3HaveTheLossesOfOneRank) {
  const Ended expected = run("one", "deepseek_v3", 1, {});
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
    expect_close(run(fmt::format("run{}", number++), "deepseek_v3", 2, layout), expected);
  }
  expect_close(run("both", "deepseek_v3", 4, {"--parallel.ep=2", "--parallel.tp=2"}), expected);
}

TEST_F(DeepseekLayouts, OfV2HaveTheLossesOfOneRank) {
  const Ended expected = run("one", "deepseek_v2", 1, {});
  expect_close(run("tp", "deepseek_v2", 2, {"--parallel.tp=2"}), expected);
  expect_close(run("both", "deepseek_v2", 4, {"--parallel.ep=2", "--parallel.pp=2"}), expected);
}

// Ranks share the heads' products, and all have those of the latent vectors.
TEST_F(DeepseekLayouts, OfAdaptersHaveTheLossesOfOneRank) {
  inline_model_ = true;
  const Ended base = run("base", "deepseek_v3", 1, {});
  inline_model_ = false;
  const std::vector<std::string> adapters = {
      "--model.from=" + base.outcome.checkpoint.string(),
      "--lora.rank=3",
      "--lora.targets=q_a_proj,q_b_proj,kv_a_proj_with_mqa,kv_b_proj,o_proj,gate_proj",
      "--train.batch_size=8",
      "--train.micro_batch=1",
      "--train.steps=5",
      "--optim.lr=0.01"};
  const auto adapt = [&](const std::string& name, int ranks, const std::vector<std::string>& more) {
    std::vector<std::string> all = adapters;
    all.insert(all.end(), more.begin(), more.end());
    return train_ranks(name, ranks, all);
  };
  const Ended expected = adapt("one", 1, {});
  expect_close(adapt("tp", 2, {"--parallel.tp=2"}), expected);
  expect_close(adapt("pp", 2, {"--parallel.pp=2"}), expected);
  expect_close(adapt("cp", 2, {"--parallel.cp=2"}), expected);
  expect_close(adapt("zero", 2, {"--dp.zero=3"}), expected);
}

TEST_F(DeepseekLayouts, GoOnFromTheFilesOfAnother) {
  const Ended expected = run("one", "deepseek_v3", 1, {});
  EXPECT_EQ(run("parts", "deepseek_v3", 4, {"--parallel.ep=2", "--parallel.tp=2"}, 2).outcome.step,
            2);
  EXPECT_EQ(run("parts", "deepseek_v3", 2, {"--dp.zero=2"}, 4).outcome.step, 4);
  expect_close(run("parts", "deepseek_v3", 1, {}), expected);
}

}  // namespace
}  // namespace atl::train
