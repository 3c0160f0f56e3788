// Twenty steps of the whole program on GPUs that the host plays, in every layout that GPUs have.

#include <string>

#include "atoll/train/gpu_testing.h"

namespace atl::train {
namespace {

class GpuRun : public GpuRuns, public ::testing::WithParamInterface<const char*> {
 protected:
  Settings family(const Settings& more = {}) const {
    const std::string name = GetParam();
    Settings all = small({"--model.family=" + name, "--train.steps=20", "--optim.lr=0.01"});
    all.push_back(name == "gpt2" ? "--model.num_key_value_heads=0" : "--eval.every=0");
    if (name == "mixtral" || name == "qwen3_moe") {
      all = with(all, {"--model.num_experts=4", "--model.intermediate_size=24",
                       "--moe.balance_loss=0.05", "--moe.z_loss=0.01"});
    }
    return with(all, more);
  }
};

std::string name_of(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

using GpuExperts = GpuRuns;

// On every change each claim is shown of one or two families, and each family is in one of them.
// What begins with Nightly is left to ./dev nightly. parallel/gpu_training_slow_test.cpp trains all
// families on every change, qwen3_moe too, without the whole program.
using ::testing::Values;
using GpuRunF32 = GpuRun;
INSTANTIATE_TEST_SUITE_P(Families, GpuRunF32, Values("llama", "gpt2"), name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuRunF32, Values("qwen3", "mixtral"), name_of);
using GpuRunBf16 = GpuRun;
INSTANTIATE_TEST_SUITE_P(Families, GpuRunBf16, Values("llama"), name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuRunBf16, Values("qwen3", "gpt2", "mixtral"), name_of);
using GpuRunHalves = GpuRun;
INSTANTIATE_TEST_SUITE_P(Families, GpuRunHalves, Values("mixtral"), name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuRunHalves, Values("llama", "qwen3", "gpt2"), name_of);
using GpuRunOrders = GpuRun;
INSTANTIATE_TEST_SUITE_P(Families, GpuRunOrders, Values("gpt2"), name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuRunOrders, Values("llama", "qwen3", "mixtral"), name_of);
using GpuRunLayouts = GpuRun;
INSTANTIATE_TEST_SUITE_P(Families, GpuRunLayouts, Values("llama"), name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuRunLayouts, Values("qwen3", "gpt2", "mixtral"), name_of);
using GpuRunMoved = GpuRun;
INSTANTIATE_TEST_SUITE_P(Families, GpuRunMoved, Values("qwen3"), name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuRunMoved, Values("llama", "gpt2", "mixtral"), name_of);

TEST_P(GpuRunF32, TwentyStepsInF32GoAsOnTheCpu) {
  const Ended cpu = on_cpu("cpu", family()), gpu = on_gpu("gpu", family());
  const std::vector<double> losses = values_of(cpu.records, "loss");
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_LT(losses.back(), losses.front() - 0.5) << "nothing was learned";
  EXPECT_LT(largest_difference(losses, values_of(gpu.records, "loss")), 2e-3);
}

TEST_P(GpuRunBf16, TwentyStepsInBf16StayWithinWhatBf16Costs) {
  const Settings narrow = family({"--train.dtype=bf16", "--data.packing=masked"});
  const Ended wide = on_cpu("wide", family({"--data.packing=masked"}));
  const Ended cpu = on_cpu("cpu", narrow), gpu = on_gpu("gpu", narrow);
  const std::vector<double> losses = values_of(cpu.records, "loss");
  // Both round to bf16, in places that are not all the same: no further apart than two roundings.
  const double bound = 2 * largest_difference(losses, values_of(wide.records, "loss"));
  EXPECT_LT(largest_difference(losses, values_of(gpu.records, "loss")), bound);
}

TEST_P(GpuRunHalves, TenAndTenStepsAreTwenty) {
  const Settings settings = family({"--train.dtype=bf16"});
  const Ended whole = on_gpu("whole", settings);
  const Settings ordered = with(settings, {"--device.fake_order=5"});
  EXPECT_EQ(on_gpu("halves", ordered, 1, /*stop_after=*/10).outcome.step, 10);
  const Ended rest = on_gpu("halves", ordered);
  EXPECT_TRUE(tensors(rest.outcome.checkpoint) == tensors(whole.outcome.checkpoint));
}

TEST_P(GpuRunOrders, EightOrdersOfStreamsGiveTheSameBits) {
  const Settings settings =
      family({"--train.dtype=bf16", "--train.steps=3", "--optim.masters=stochastic"});
  const Ended first = on_gpu("order0", settings);
  for (int order = 1; order < 8; ++order) {
    const Ended other = on_gpu(fmt::format("order{}", order),
                               with(settings, {fmt::format("--device.fake_order={}", order)}));
    EXPECT_TRUE(tensors(other.outcome.checkpoint) == tensors(first.outcome.checkpoint)) << order;
    EXPECT_EQ(values_of(other.records, "held_out_loss"), values_of(first.records, "held_out_loss"));
  }
}

// At one number of ranks ZeRO, recompute and buckets change no bit; with exact sums the number of
// ranks and of micro-batches changes none either.
TEST_P(GpuRunLayouts, LayoutsOfRanksGiveTheSameBits) {
  const Settings settings = family({"--train.micro_batch=1", "--train.steps=4", "--eval.every=2"});
  const Ended expected = on_gpu("zero0", settings, 2);
  for (int zero = 1; zero <= 3; ++zero) {
    const Settings layout =
        with(settings, {fmt::format("--dp.zero={}", zero), "--dp.bucket_mib=0.01",
                        zero == 2 ? "--train.recompute=full" : "--train.recompute=selective"});
    const Ended ended = on_gpu(fmt::format("zero{}", zero), layout, 2);
    EXPECT_TRUE(ended.values == expected.values) << zero;
    EXPECT_EQ(values_of(ended.records, "held_out_loss"),
              values_of(expected.records, "held_out_loss"));
    EXPECT_EQ(values_of(ended.records, "grad_norm"), values_of(expected.records, "grad_norm"));
  }
  const Settings exact = with(settings, {"--train.exact=true"});
  const Ended one = on_gpu("exact1", exact);
  for (const int ranks : {2, 4}) {
    const Settings layout = with(exact, {fmt::format("--dp.zero={}", ranks == 2 ? 1 : 3)});
    const Ended ended = on_gpu(fmt::format("exact{}", ranks), layout, ranks);
    EXPECT_TRUE(ended.values == one.values) << ranks;
  }
}

// Ranks with other experts, and several of each.
TEST_F(GpuExperts, SharedAmongRanksTrainAsOnCpusWhateverIsSharedBesides) {
  const Settings settings = small({"--model.family=mixtral", "--model.num_experts=4",
                                   "--model.intermediate_size=24", "--moe.balance_loss=0.05",
                                   "--train.micro_batch=1", "--train.steps=4", "--parallel.ep=2"});
  for (const char* dtype : {"f32", "bf16"}) {
    const Settings all = with(settings, {"--train.dtype=" + std::string(dtype)});
    const Ended cpu = on_cpu("cpu" + std::string(dtype), with(all, {"--train.batch_size=4"}), 4);
    const Ended gpu = on_gpu("gpu" + std::string(dtype), with(all, {"--train.batch_size=4"}), 4);
    // As between one rank and several of a CPU: expert_parallel_test.cpp.
    EXPECT_LT(largest_difference(values_of(cpu.records, "loss"), values_of(gpu.records, "loss")),
              dtype == std::string("f32") ? 2e-3 : 0.05)
        << dtype;
    const Ended zero = on_gpu("zero" + std::string(dtype),
                              with(all, {"--train.batch_size=4", "--dp.zero=3",
                                         "--train.recompute=full", "--device.fake_order=5"}),
                              4);
    EXPECT_TRUE(zero.values == gpu.values) << dtype;
  }
}

// A checkpoint does not know what wrote it.
TEST_P(GpuRunMoved, GoesOnOnTheOtherKindOfDevice) {
  const Settings settings = family({"--train.steps=6"});
  const Ended cpu = on_cpu("cpu", settings);
  EXPECT_EQ(train_ranks("moved", 1, settings, /*stop_after=*/2).outcome.step, 2);
  EXPECT_EQ(on_gpu("moved", settings, 1, /*stop_after=*/4).outcome.step, 4);
  const Ended moved = on_cpu("moved", settings);
  EXPECT_EQ(moved.outcome.step, 6);
  EXPECT_LT(largest_difference(values_of(cpu.records, "loss"), values_of(moved.records, "loss")),
            2e-3);
}

}  // namespace
}  // namespace atl::train
