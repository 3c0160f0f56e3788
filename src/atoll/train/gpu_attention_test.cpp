// Whole runs with cuDNN's attention, as the GPU that the host plays has it.

#include <fmt/ranges.h>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/device/sdpa.h"
#include "atoll/ops/attention/gpu_attention.h"
#include "atoll/train/gpu_testing.h"
#include "atoll/train/model/run_device.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuAttentionRun : public GpuRuns {
 protected:
  void TearDown() override {
    ops::set_gpu_attention(ops::GpuAttention::kOwn);
    GpuRuns::TearDown();
  }
  static Settings cudnn(const Settings& more = {}) {
    return heads_of_eight(with({"--device.attention=cudnn"}, more));
  }
  static Settings heads_of_eight(const Settings& more = {}) {
    return small(with({"--train.dtype=bf16", "--model.head_dim=8"}, more));
  }
};

TEST_F(GpuAttentionRun, TrainsAsTheCpuDoes) {
  const Ended gpu = on_gpu("cudnn", cudnn({"--eval.every=2"}));
  const Ended own = on_gpu("own", heads_of_eight({"--eval.every=2"}));
  const Ended cpu = on_cpu("cpu", heads_of_eight({"--eval.every=2"}));
  for (const char* key : {"loss", "held_out_loss"}) {
    // A weight of bf16 is rounded by 2^-9 of itself, and AdamW's first updates go by signs.
    EXPECT_LT(largest_difference(values_of(cpu.records, key), values_of(gpu.records, key)), 0.02)
        << key;
  }
  EXPECT_EQ(values_of(gpu.records, "loss").size(), 4u);
  EXPECT_NE(gpu.values, own.values) << "our own kernels attended";
}

TEST_F(GpuAttentionRun, TwoAndTwoStepsAreFourInAnyOrder) {
  const Ended whole = on_gpu("whole", cudnn());
  EXPECT_EQ(on_gpu("halves", cudnn(), 1, /*stop_after=*/2).outcome.step, 2);
  const Ended rest = on_gpu("halves", cudnn({"--device.fake_order=3"}));
  EXPECT_TRUE(tensors(rest.outcome.checkpoint) == tensors(whole.outcome.checkpoint));
}

// The workspace is memory of the step's, and a batch that does not fit goes through it in chunks.
TEST(GpuAttentionStep, GivesTheSameBitsInChunksOfTheBatch) {
  constexpr std::int64_t kBatch = 5, kLength = 12;
  nn::ModelConfig model = testing::tiny_model("llama");
  model.heads.head_dim = 8;
  const auto step = [&](std::size_t most_bytes, std::vector<std::string>& calls) {
    ops::set_gpu_attention(ops::GpuAttention::kCudnn, most_bytes);
    fake_cuda::FakeCudaDevice device({.seed = 5});
    TrainState state({.model = model,
                      .build = {.dtype = Dtype::kBf16},
                      .micro_batch = kBatch,
                      .context = kLength});
    state.allocate(device);
    const auto stream = device.open_stream();
    atl::Run run = {.stream = stream.get()};
    state.store().initialise(run, 5);
    state.optimizer().init_masters(run, state.store().values());
    test::OwnedTensor<std::int32_t> tokens = test::random_tokens({kBatch, kLength}, 61, 1);
    const StepResult result =
        take_step(state, *stream, {.step = 0, .num_micro_batches = 1, .lr = 0.01, .clip = 1},
                  [&] { return Batch{.tokens = tokens, .targets = tokens}; });
    calls = device.library_calls();
    std::erase_if(calls, [](const std::string& call) { return !call.starts_with("attention"); });
    ops::set_gpu_attention(ops::GpuAttention::kOwn);
    return std::pair(result.loss, result.grad_norm);
  };
  const SdpaCall two = {true, 2, model.heads.num_heads, model.heads.num_kv_heads, kLength, 8, 1};
  std::vector<std::string> whole_calls, calls;
  const auto whole = step(ops::kMostWorkspaceBytes, whole_calls);
  EXPECT_EQ(step(sdpa_workspace_bytes(two), calls), whole);
  const auto layers = static_cast<std::size_t>(model.num_layers);
  EXPECT_EQ(whole_calls.size(), 2 * layers) << fmt::format("{}", fmt::join(whole_calls, "\n"));
  EXPECT_EQ(calls.size(), 4 * layers) << "backward of 2, 2 and 1";
}

TEST_F(GpuAttentionRun, IsRefusedWhereItCannotBe) {
  const auto refusal = [&](const Settings& settings, bool is_gpu = true) {
    return error_of([&] { is_gpu ? on_gpu("no", settings) : on_cpu("no", settings); },
                    ErrorKind::kUser);
  };
  EXPECT_THAT(refusal(cudnn(), /*is_gpu=*/false),
              AllOf(HasSubstr("device.attention"),
                    HasSubstr("is for device.kind cuda, auto or fake_cuda")));
  EXPECT_THAT(refusal(small({"--device.attention=cudnn"})),
              AllOf(HasSubstr("device.attention"), HasSubstr("train.dtype")));
  EXPECT_THAT(refusal(cudnn({"--data.packing=masked"})),
              AllOf(HasSubstr("device.attention"), HasSubstr("data.packing")));
  EXPECT_THAT(refusal(small({"--device.attention_mib=7"})),
              AllOf(HasSubstr("remove device.attention_mib, or set device.attention=cudnn")));
  EXPECT_THAT(refusal(cudnn({"--model.head_dim=4"})),
              AllOf(HasSubstr("heads of 4 elements"), HasSubstr("multiple of 8")));
  EXPECT_THAT(refusal(cudnn({"--train.context=1024", "--device.attention_mib=2"})),
              AllOf(HasSubstr("workspace"), HasSubstr("device.attention_mib")));
  EXPECT_THAT(refusal(cudnn({"--model.family=mistral", "--model.sliding_window=8"})),
              HasSubstr("sliding window"));
  EXPECT_THAT(refusal(small({"--device.attention=flash"})), HasSubstr("own, cudnn"));
}

TEST(Cudnn, IsMissedByName) {
  if (has_cudnn()) GTEST_SKIP() << "this build has it";
  EXPECT_THAT(cudnn_problem(), AllOf(HasSubstr("built without cuDNN"), HasSubstr("front end")));
  EXPECT_THROW(open_sdpa(nullptr), Error);
}

}  // namespace
}  // namespace atl::train
