// train.fp8: whole runs whose linear layers multiply in 8 bits, on a GPU that the host plays,
// beside a CPU that rounds alike.

#include "atoll/train/gpu_testing.h"

namespace atl::train {
namespace {

class GpuFp8 : public GpuRuns, public ::testing::WithParamInterface<const char*> {
 protected:
  static Settings in_bf16(const Settings& more = {}) {
    return small(with({"--train.dtype=bf16"}, more));
  }
  static Settings in_fp8(const std::string& scaling, const Settings& more = {}) {
    return in_bf16(with({"--train.fp8=" + scaling}, more));
  }
  // Losses of all steps, and the first step's gradient, which notices more.
  void expect_as_cpu(const Ended& gpu, const Ended& cpu) {
    EXPECT_LT(largest_difference(values_of(cpu.records, "loss"), values_of(gpu.records, "loss")),
              0.02);
    const double exact = values_of(cpu.records, "grad_norm").at(0);
    EXPECT_NEAR(values_of(gpu.records, "grad_norm").at(0), exact, 5e-3 * exact);
  }
  void expect_same_run(const Ended& got, const Ended& expected) {
    EXPECT_EQ(values_of(got.records, "loss"), values_of(expected.records, "loss"));
    EXPECT_TRUE(got.values == expected.values);
  }
};

TEST_P(GpuFp8, TrainsAsTheCpuDoes) {
  for (const char* family : {"gpt2", "qwen3"}) {
    SCOPED_TRACE(family);
    const Settings model = {std::string("--model.family=") + family,
                            "--model.num_key_value_heads=0", "--eval.every=2"};
    const Ended gpu = on_gpu(fmt::format("gpu-{}", family), in_fp8(GetParam(), model));
    const Ended cpu = on_cpu(fmt::format("cpu-{}", family), in_fp8(GetParam(), model));
    const Ended bf16 = on_gpu(fmt::format("bf16-{}", family), in_bf16(model));
    expect_as_cpu(gpu, cpu);
    for (const char* key : {"loss", "held_out_loss"}) {
      EXPECT_LT(largest_difference(values_of(cpu.records, key), values_of(gpu.records, key)), 0.02)
          << key;
    }
    EXPECT_EQ(values_of(gpu.records, "loss").size(), 4u);
    EXPECT_NE(values_of(gpu.records, "loss"), values_of(bf16.records, "loss")) << "in bf16";
    EXPECT_LT(largest_difference(values_of(bf16.records, "loss"), values_of(gpu.records, "loss")),
              0.05);
  }
}

TEST_P(GpuFp8, TwoAndTwoStepsAreFourInAnyOrder) {
  const Ended whole = on_gpu("whole", in_fp8(GetParam()));
  EXPECT_EQ(on_gpu("halves", in_fp8(GetParam()), 1, /*stop_after=*/2).outcome.step, 2);
  const Ended rest = on_gpu("halves", in_fp8(GetParam(), {"--device.fake_order=3"}));
  EXPECT_TRUE(tensors(rest.outcome.checkpoint) == tensors(whole.outcome.checkpoint));
}

// A scale is that of a rank's own micro-batch, and that is the same however many ranks there are.
TEST_P(GpuFp8, RanksGiveTheBitsOfOne) {
  const Ended one = on_gpu("one", in_fp8(GetParam()));
  expect_same_run(on_gpu("two", in_fp8(GetParam(), {"--dp.zero=3"}), 2), one);
}

TEST_P(GpuFp8, RecomputeGraphsAndMemoryOfTheHostChangeNoBit) {
  const Ended plain = on_gpu("plain", in_fp8(GetParam()));
  const Settings all = {"--train.recompute=full", "--device.graphs=true",
                        "--offload.optimizer=host"};
  expect_same_run(on_gpu("all", in_fp8(GetParam(), all)), plain);
}

TEST_P(GpuFp8, TrainsAdaptersAndPartsOfProducts) {
  const std::string base = on_cpu("base", in_bf16()).outcome.checkpoint.string();
  const Settings parts = in_fp8(GetParam(), {"--parallel.tp=2", "--model.hidden_size=32"});
  expect_as_cpu(on_gpu("gpu-parts", parts, 2), on_cpu("cpu-parts", parts, 2));
  inline_model_ = false;
  const Settings adapters = {"--model.from=" + base,
                             "--lora.rank=2",
                             "--train.context=16",
                             "--train.steps=4",
                             "--eval.every=0",
                             "--train.dtype=bf16",
                             std::string("--train.fp8=") + GetParam()};
  const Ended gpu = on_gpu("gpu", adapters), cpu = on_cpu("cpu", adapters);
  expect_as_cpu(gpu, cpu);
}

INSTANTIATE_TEST_SUITE_P(Scaling, GpuFp8, ::testing::Values("tensor", "blocks"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace atl::train
