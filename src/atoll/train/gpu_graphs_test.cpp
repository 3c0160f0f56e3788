// device.graphs: a micro-batch's passes as one graph, on a GPU that the host plays. A graph has its
// kernels' operands as they were when it was captured, so whatever it must not keep shows in the
// bits of later steps.

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/train/gpu_testing.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using GpuGraphs = GpuRuns;

// Steps of two micro-batches whose numbers of targets differ from step to step.
class Steps {
 public:
  Steps(bool graphs, const std::string& family)
      : state_({.model = testing::tiny_model(family),
                .build = {.dropout = 0.2, .device = DeviceKind::kCuda},
                .micro_batch = 2,
                .context = kLength}) {
    state_.allocate(device_);
    if (graphs) state_.runner().use_graphs();
    stream_ = device_.open_stream();
    atl::Run run = {.stream = stream_.get()};
    state_.store().initialise(run, 5);
    state_.optimizer().init_masters(run, state_.store().values());
  }

  StepResult take(std::int64_t step) {
    tokens_ = test::random_tokens({2, kLength}, 61, static_cast<std::uint64_t>(step + 1));
    std::int64_t number = 0;
    stream_->synchronize();
    waits_ = device_.num_waits();
    StepResult result =
        take_step(state_, *stream_,
                  {.step = step, .seed = 7, .num_micro_batches = 2, .lr = 0.01, .clip = 1}, [&] {
                    return Batch{.tokens = tokens_,
                                 .targets = tokens_,
                                 .first_sample = 4 * step + 2 * number++,
                                 .step_targets = 40 + step};
                  });
    waits_ = device_.num_waits() - waits_;
    return result;
  }
  std::int64_t waits() const { return waits_; }
  std::size_t captured() { return state_.runner().graphs()->num_captured(); }
  fake_cuda::FakeCudaDevice& device() { return device_; }

 private:
  static constexpr std::int64_t kLength = 12;
  fake_cuda::FakeCudaDevice device_{{}};
  TrainState state_;
  std::unique_ptr<Stream> stream_;
  test::OwnedTensor<std::int32_t> tokens_;
  std::int64_t waits_ = 0;
};

TEST(GpuGraphSteps, AreThoseOfStepsWithoutAndWaitOnce) {
  for (const char* family : {"gpt2", "mixtral"}) {
    SCOPED_TRACE(family);
    Steps plain(false, family), graphs(true, family);
    for (std::int64_t step = 0; step < 5; ++step) {
      const StepResult expected = plain.take(step), got = graphs.take(step);
      EXPECT_EQ(got.loss, expected.loss) << step;
      EXPECT_EQ(got.grad_norm, expected.grad_norm) << step;
      // The first micro-batch of a step begins gradients and the second adds to them: two graphs,
      // which the first step has not.
      EXPECT_EQ(graphs.captured(), step == 0 ? 0u : 2u);
      if (step < 2) continue;
      EXPECT_EQ(graphs.waits(), 1) << step;
    }
    EXPECT_EQ(graphs.device().library_calls(), plain.device().library_calls());
  }
}

TEST_F(GpuGraphs, ChangeNoBitOfARun) {
  for (const Settings& model : std::vector<Settings>{
           {"--train.dropout=0.1", "--data.packing=documents", "--optim.clip=0.1"},
           {"--model.family=qwen3_moe", "--model.num_experts=4", "--model.moe_intermediate_size=16",
            "--moe.balance_loss=0.05", "--train.dtype=bf16", "--train.recompute=full"},
           {"--optim.kind=lion", "--offload.optimizer=host", "--optim.lr=0.001"}}) {
    SCOPED_TRACE(model.front());
    const Settings settings = small(with(model, {"--eval.every=2"}));
    const Ended plain = on_gpu("plain", settings);
    const Ended graphs = on_gpu("graphs", with(settings, {"--device.graphs=true"}));
    EXPECT_TRUE(all_tensors(graphs.outcome.checkpoint) == all_tensors(plain.outcome.checkpoint));
    EXPECT_EQ(values_of(graphs.records, "loss"), values_of(plain.records, "loss"));
    EXPECT_EQ(values_of(graphs.records, "held_out_loss"),
              values_of(plain.records, "held_out_loss"));
    std::filesystem::remove_all(plain.outcome.checkpoint.parent_path().parent_path());
    std::filesystem::remove_all(graphs.outcome.checkpoint.parent_path().parent_path());
  }
}

TEST_F(GpuGraphs, TrainAdapters) {
  const std::string base = on_cpu("base", small()).outcome.checkpoint.string();
  inline_model_ = false;
  const Settings settings = {"--model.from=" + base, "--lora.rank=2",       "--train.context=16",
                             "--train.steps=4",      "--train.dropout=0.1", "--eval.every=0"};
  const Ended plain = on_gpu("plain", settings);
  const Ended graphs = on_gpu("graphs", with(settings, {"--device.graphs=true"}));
  EXPECT_EQ(values_of(graphs.records, "loss"), values_of(plain.records, "loss"));
  EXPECT_TRUE(graphs.values == plain.values);
}

TEST_F(GpuGraphs, GoOnInARunWithoutThem) {
  const Settings settings = small({"--train.dropout=0.1"});
  const Ended whole = on_gpu("whole", settings);
  EXPECT_EQ(on_gpu("halves", with(settings, {"--device.graphs=true"}), 1, 2).outcome.step, 2);
  const Ended rest = on_gpu("halves", with(settings, {"--device.fake_order=3"}));
  EXPECT_TRUE(tensors(rest.outcome.checkpoint) == tensors(whole.outcome.checkpoint));
}

TEST_F(GpuGraphs, AreRefusedByNameWhereTheyCannotBe) {
  const Settings graphs = {"--device.graphs=true"};
  EXPECT_THAT(
      error_of([&] { on_cpu("refused", small(graphs)); }, ErrorKind::kUser),
      AllOf(HasSubstr("device.graphs"), HasSubstr("is for device.kind cuda, auto or fake_cuda")));
  EXPECT_THAT(error_of([&] { on_gpu("refused", small(graphs), 2); }, ErrorKind::kUser),
              AllOf(HasSubstr("device.graphs"), HasSubstr("2 ranks"), HasSubstr("leave it out")));
  EXPECT_THAT(error_of([&] { on_gpu("refused", small(with(graphs, {"--train.exact=true"}))); },
                       ErrorKind::kUser),
              AllOf(HasSubstr("device.graphs"), HasSubstr("train.exact"),
                    HasSubstr("set device.graphs=false")));
}

TEST_F(GpuGraphs, AGpuThatIsLostWithinOneKeepsTheCheckpoint) {
  const Settings settings = small({"--checkpoint.every=1", "--device.graphs=true"});
  const std::string message = lose_gpu("lost", settings, 300);
  EXPECT_THAT(message, AllOf(HasSubstr("the GPU is lost"), HasSubstr("The last checkpoint is")));
}

}  // namespace
}  // namespace atl::train
