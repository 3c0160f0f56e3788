// train.fp8: what multiplies in 8 bits in a step, a short run beside a CPU's, and refusals. Whole
// runs are in gpu_fp8_slow_test.cpp.

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/train/gpu_testing.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using GpuFp8 = GpuRuns;

TEST_F(GpuFp8, AStepIsThatOfTheCpu) {
  const std::vector<std::string> settings =
      small({"--train.dtype=bf16", "--train.fp8=blocks", "--train.steps=1",
             "--optim.warmup_steps=0", "--train.batch_size=8", "--eval.every=0"});
  const Ended gpu = on_gpu("gpu", settings), cpu = on_cpu("cpu", settings);
  // Some numbers of bf16 are rounded to their other neighbour. A layer's output that is half as
  // large moves them by 5e-4 and 2e-2.
  for (const auto& [key, bound] : {std::pair("loss", 1e-4), {"grad_norm", 2e-3}}) {
    const double exact = values_of(cpu.records, key).at(0);
    EXPECT_NEAR(values_of(gpu.records, key).at(0), exact, bound * exact) << key;
  }
}

TEST_F(GpuFp8, RefusalsNameWhatDoesNotFit) {
  const auto refused = [&](const Settings& settings) {
    return error_of([&] { on_gpu("refused", small(settings)); }, ErrorKind::kUser);
  };
  const Settings fp8 = {"--train.fp8=tensor", "--train.dtype=bf16"};
  EXPECT_THAT(refused({"--train.fp8=tensor"}),
              AllOf(HasSubstr("train.fp8 (\"tensor\""), HasSubstr("train.dtype=bf16")));
  EXPECT_THAT(refused(with(fp8, {"--train.context=12", "--train.micro_batch=1"})),
              AllOf(HasSubstr("12 tokens at a time"), HasSubstr("multiples of 16"),
                    HasSubstr("train.micro_batch, train.context or parallel.cp")));
  EXPECT_THAT(refused(with(fp8, {"--model.intermediate_size=40"})),
              AllOf(HasSubstr("40"), HasSubstr("multiples of 16"), HasSubstr("--train.fp8=off")));
  EXPECT_THAT(refused({"--train.fp8=row", "--train.dtype=bf16"}),
              AllOf(HasSubstr("train.fp8"), HasSubstr("blocks")));
}

// What a step's library calls are that begin so.
struct StepCalls {
  explicit StepCalls(nn::ModelConfig model) {
    model.hidden_size = 32;
    model.intermediate_size = 48;
    model.heads.head_dim = 16;
    fake_cuda::FakeCudaDevice device({.seed = 5});
    TrainState state({.model = model,
                      .build = {.dtype = Dtype::kBf16},
                      .fp8 = ops::Fp8Scaling::kTensor,
                      .micro_batch = 2,
                      .context = 16});
    state.allocate(device);
    const auto stream = device.open_stream();
    atl::Run run = {.stream = stream.get()};
    state.store().initialise(run, 5);
    state.optimizer().init_masters(run, state.store().values());
    test::OwnedTensor<std::int32_t> tokens = test::random_tokens({2, 16}, 61, 1);
    take_step(state, *stream, {.step = 0, .num_micro_batches = 1, .lr = 0.01, .clip = 1},
              [&] { return Batch{.tokens = tokens, .targets = tokens}; });
    calls = device.library_calls();
  }
  std::int64_t count(const std::string& begin) const {
    return std::count_if(calls.begin(), calls.end(),
                         [&](const std::string& call) { return call.starts_with(begin); });
  }
  std::vector<std::string> calls;
};

TEST(GpuFp8Step, MultipliesLinearLayersIn8Bits) {
  const nn::ModelConfig model = testing::tiny_model("llama");
  const StepCalls step(model);
  // qkv, out, gate and up together, down; forward, and two backward.
  EXPECT_EQ(step.count("matmul_fp8 "), 3 * 4 * model.num_layers);
  EXPECT_EQ(step.count("matmul "), 3);  // the head's
}

TEST(GpuFp8Step, LeavesRoutersAndExpertsInBf16) {
  const nn::ModelConfig model = testing::tiny_model("mixtral");
  const StepCalls step(model);
  EXPECT_EQ(step.count("matmul_fp8 "), 3 * 2 * model.num_layers);  // qkv, out
}

}  // namespace
}  // namespace atl::train
