// Models with experts whose ranks share products, sequences, stages and experts, and their
// adapters, on GPUs that the host plays: the losses of CPUs in the same layout, and the same bits
// in another order of streams and after a stop.

#include "atoll/train/gpu_testing.h"

namespace atl::train {
namespace {

class GpuExpertLayouts : public GpuRuns {
 protected:
  static Settings with_experts(const Settings& more) {
    return small(with(
        {"--model.family=qwen3_moe", "--model.num_experts=4", "--model.moe_intermediate_size=16",
         "--moe.balance_loss=0.05", "--moe.z_loss=0.01", "--train.micro_batch=1", "--train.steps=3",
         "--train.dropout=0", "--eval.every=3", "--dp.bucket_mib=0.01"},
        more));
  }
  void expect_as_on_cpus(int ranks, const Settings& settings) {
    const Ended cpu = on_cpu("cpu", settings, ranks), gpu = on_gpu("gpu", settings, ranks);
    for (const char* key : {"loss", "held_out_loss", "balance_loss"}) {
      EXPECT_FALSE(values_of(gpu.records, key).empty()) << key;
      // f32: sums in another order, and a token near a tie may go to another expert.
      EXPECT_LT(largest_difference(values_of(cpu.records, key), values_of(gpu.records, key)), 2e-3)
          << key;
    }
    EXPECT_NE(gpu.values, cpu.values) << "it was a CPU that trained";
    remove("cpu");
    remove("gpu");
  }
  void remove(const std::string& name) { std::filesystem::remove_all(root_ / name); }
};

TEST_F(GpuExpertLayouts, HaveTheLossesOfCpus) {
  for (const auto& [ranks, layout] : std::vector<std::pair<int, Settings>>{
           {2, {"--parallel.tp=2"}},
           {2, {"--parallel.cp=2", "--parallel.cp_attention=ring"}},
           {2, {"--parallel.pp=2", "--parallel.schedule=zb-h1", "--moe.capacity_factor=1.1"}},
           {4, {"--parallel.tp=2", "--parallel.ep=2", "--dp.zero=1"}},
           {4, {"--parallel.cp=2", "--parallel.pp=2"}}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    expect_as_on_cpus(ranks, with_experts(layout));
  }
}

TEST_F(GpuExpertLayouts, GiveTheSameBitsInAnotherOrderAndAfterAStop) {
  const Settings settings =
      with_experts({"--train.dtype=bf16", "--parallel.tp=2", "--parallel.pp=2", "--dp.zero=2"});
  const Ended whole = on_gpu("whole", settings, 4);
  EXPECT_EQ(on_gpu("parts", settings, 4, /*stop_after=*/1).outcome.step, 1);
  const Ended rest = on_gpu("parts", with(settings, {"--device.fake_order=3"}), 4);
  EXPECT_TRUE(all_tensors(rest.outcome.checkpoint) == all_tensors(whole.outcome.checkpoint));
}

TEST_F(GpuExpertLayouts, AdaptersOfThemTrainAsOnTheCpu) {
  for (const char* family : {"mixtral", "qwen3_moe"}) {
    SCOPED_TRACE(family);
    inline_model_ = true;
    const std::string base =
        on_cpu("base", small({std::string("--model.family=") + family, "--model.num_experts=4"}))
            .outcome.checkpoint.string();
    inline_model_ = false;
    const Settings settings = {"--model.from=" + base,      "--lora.rank=3",
                               "--lora.targets=all-linear", "--train.context=16",
                               "--train.steps=4",           "--optim.lr=0.02",
                               "--train.dropout=0",         "--eval.max_tokens=64"};
    const Ended cpu = on_cpu("cpu", settings), gpu = on_gpu("gpu", settings);
    EXPECT_LT(largest_difference(values_of(cpu.records, "loss"), values_of(gpu.records, "loss")),
              2e-3);
    EXPECT_NE(gpu.values, cpu.values) << "it was a CPU that trained";
    EXPECT_NE(values_of(gpu.records, "loss").front(), values_of(gpu.records, "loss").back());
    // Beside shared products, which sum in another order.
    const Ended shared = on_gpu("shared", with(settings, {"--parallel.tp=2"}), 2);
    EXPECT_LT(largest_difference(values_of(shared.records, "loss"), values_of(gpu.records, "loss")),
              2e-3);
    for (const char* name : {"base", "cpu", "gpu", "shared"}) remove(name);
  }
}

}  // namespace
}  // namespace atl::train
