// The whole program on a GPU that the host plays: what a run must refuse, survive and repeat. How
// it trains over many steps is in gpu_slow_test.cpp.

#include <fmt/ranges.h>

#include "atoll/device/choose_device.h"
#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/train/gpu_testing.h"
#include "atoll/train/model/memory_check.h"
#include "atoll/train/model/run_device.h"
#include "atoll/train/testing.h"

namespace atl::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using GpuRun = GpuRuns;

// A model with experts that drop tokens, and whose router has losses of its own.
const std::vector<std::string> kExperts = {"--model.family=qwen3_moe",
                                           "--model.num_experts=4",
                                           "--model.moe_intermediate_size=16",
                                           "--moe.balance_loss=0.05",
                                           "--moe.z_loss=0.01",
                                           "--moe.capacity_factor=1.1",
                                           "--eval.every=2"};

TEST_F(GpuRun, TakesStepsEvaluatesAndSavesAsOnTheCpu) {
  const Settings settings = small({"--eval.every=2"});
  const Ended cpu = on_cpu("cpu", settings), gpu = on_gpu("gpu", settings);
  // f32: sums in another order; and AdamW's first updates go by the sign of a gradient.
  for (const char* key : {"loss", "held_out_loss"}) {
    EXPECT_LT(largest_difference(values_of(cpu.records, key), values_of(gpu.records, key)), 1e-3)
        << key;
  }
  EXPECT_EQ(values_of(gpu.records, "loss").size(), 4u);
  EXPECT_EQ(values_of(gpu.records, "held_out_loss").size(), 2u);
  EXPECT_TRUE(values_of(gpu.records, "mfu").empty()) << "nobody states the peak of a fake GPU";
  EXPECT_NE(gpu.values, cpu.values) << "it was a CPU that trained";
}

void expect_one_wait(const std::string& family) {
  SCOPED_TRACE(family);
  constexpr std::int64_t kLength = 12;
  fake_cuda::FakeCudaDevice device({});
  TrainState state({.model = testing::tiny_model(family), .micro_batch = 2, .context = kLength});
  state.allocate(device);
  const auto stream = device.open_stream();
  atl::Run run = {.stream = stream.get()};
  state.store().initialise(run, 5);
  state.optimizer().init_masters(run, state.store().values());
  test::OwnedTensor<std::int32_t> tokens = test::random_tokens({2, kLength}, 61, 1);
  for (std::int64_t step = 0; step < 4; ++step) {
    stream->synchronize();
    const std::int64_t before = device.num_waits(), taken = device.num_allocations();
    const StepResult result =
        take_step(state, *stream, {.step = step, .num_micro_batches = 2, .lr = 0.01, .clip = 1},
                  [&] { return Batch{.tokens = tokens, .targets = tokens}; });
    EXPECT_GT(result.loss, 0);
    EXPECT_EQ(device.num_waits() - before, 1) << "step " << step;
    if (step < 2) continue;  // each of two slots of a loader takes its memory once
    EXPECT_EQ(device.num_allocations(), taken) << "step " << step;
  }
}

TEST(GpuStep, IsWaitedForOnceAndTakesNoMemory) {
  expect_one_wait("llama");
  expect_one_wait("mixtral");  // how many tokens an expert has is known on the GPU alone
}

TEST_F(GpuRun, HasExpertsThatAreAsBusyAsOnTheCpu) {
  const Settings settings = small(kExperts);
  const Ended cpu = on_cpu("cpu", settings), gpu = on_gpu("gpu", settings);
  for (const char* key : {"loss", "held_out_loss", "balance_loss", "expert_load_most",
                          "expert_load_least", "expert_dropped_fraction"}) {
    EXPECT_FALSE(values_of(cpu.records, key).empty()) << key;
    // As above. A token near a tie may go elsewhere: one of 64 choices of a block.
    const double bound = std::string(key).rfind("expert", 0) == 0 ? 0.1 : 2e-3;
    EXPECT_LT(largest_difference(values_of(cpu.records, key), values_of(gpu.records, key)), bound)
        << key;
  }
  EXPECT_NE(gpu.values, cpu.values) << "it was a CPU that trained";
}

// Rows of tokens go from GPU to GPU and back.
TEST_F(GpuRun, SharesExpertsAmongRanksAsCpusDo) {
  const Settings settings = small(with(kExperts, {"--parallel.ep=2", "--train.micro_batch=1"}));
  const Ended cpu = on_cpu("cpu", settings, 2), gpu = on_gpu("gpu", settings, 2);
  for (const char* key : {"loss", "held_out_loss", "balance_loss"}) {
    EXPECT_LT(largest_difference(values_of(cpu.records, key), values_of(gpu.records, key)), 2e-3)
        << key;
  }
  const Ended ordered = on_gpu("ordered", with(settings, {"--device.fake_order=3"}), 2);
  EXPECT_TRUE(ordered.values == gpu.values);
  EXPECT_EQ(on_gpu("halves", settings, 2, /*stop_after=*/2).outcome.step, 2);
  EXPECT_TRUE(on_gpu("halves", settings, 2).values == gpu.values);
}

TEST_F(GpuRun, TwoAndTwoStepsAreFour) {
  const Settings settings = small({"--train.dtype=bf16"});
  const Ended whole = on_gpu("whole", settings);
  EXPECT_EQ(on_gpu("halves", settings, 1, /*stop_after=*/2).outcome.step, 2);
  const Ended rest = on_gpu("halves", with(settings, {"--device.fake_order=3"}));
  EXPECT_EQ(rest.outcome.step, 4);
  EXPECT_TRUE(tensors(rest.outcome.checkpoint) == tensors(whole.outcome.checkpoint));
}

TEST_F(GpuRun, RanksShareStateAndChangeNoBitInExactRuns) {
  const Settings settings = small(
      {"--train.micro_batch=1", "--train.exact=true", "--train.steps=3", "--dp.bucket_mib=0.01"});
  const Ended one = on_gpu("one", settings);
  const Ended two = on_gpu("two", with(settings, {"--dp.zero=3"}), 2);
  EXPECT_TRUE(two.values == one.values);
  EXPECT_EQ(values_of(two.records, "held_out_loss"), values_of(one.records, "held_out_loss"));
}

// Other layouts are in gpu_layouts_slow_test.cpp.
TEST_F(GpuRun, SharesProductsSequencesAndStagesAsOnTheCpu) {
  const Settings common = small({"--train.micro_batch=1", "--train.steps=3", "--train.dropout=0"});
  const Ended one = on_gpu("one", common);
  for (const auto& [name, layout] : std::vector<std::pair<std::string, Settings>>{
           {"shared", {"--parallel.tp=2", "--parallel.cp=2", "--parallel.cp_attention=ring"}},
           {"stages", {"--parallel.pp=2", "--parallel.schedule=zb-h1", "--dp.zero=1"}}}) {
    const Ended cpu = on_cpu(name + "-cpu", with(common, layout), 4);
    const Ended gpu = on_gpu(name, with(common, layout), 4);
    for (const Ended& expected : {cpu, one}) {
      EXPECT_LT(
          largest_difference(values_of(expected.records, "loss"), values_of(gpu.records, "loss")),
          1e-3)
          << name;
    }
  }
}

TEST_F(GpuRun, RefusesByNameWhatItCannotDo) {
  for (const auto& one : std::vector<std::pair<Settings, std::string>>{
           {{"--offload.params=file", "--offload.optimizer=file"}, "offload.params"},
           {{"--dp.balance=true"}, "dp.balance"}}) {
    EXPECT_THAT(error_of([&] { on_gpu("refused", small(one.first), 2); }, ErrorKind::kUser),
                AllOf(HasSubstr(one.second), HasSubstr("does not go together with device.kind"),
                      HasSubstr("set device.kind=cpu")))
        << one.second;
  }
  EXPECT_THAT(error_of([&] { on_gpu("refused", small({"--device.bf16=f32"})); }, ErrorKind::kUser),
              HasSubstr("device.bf16"));
  EXPECT_THAT(error_of([&] { on_gpu("refused", small({"--comm.gpu=nccl"})); }, ErrorKind::kUser),
              AllOf(HasSubstr("comm.gpu"), HasSubstr("device.kind=cuda")));
  EXPECT_THAT(
      error_of([&] { on_cpu("refused", small({"--comm.gpu_sums=nccl"})); }, ErrorKind::kUser),
      AllOf(HasSubstr("comm.gpu_sums"), HasSubstr("set comm.gpu=nccl")));
  EXPECT_THAT(error_of(
                  [&] {
                    on_cpu("refused", small({"--device.kind=auto", "--comm.gpu=nccl",
                                             "--comm.gpu_sums=nccl", "--train.exact=true"}));
                  },
                  ErrorKind::kUser),
              AllOf(HasSubstr("comm.gpu_sums"), HasSubstr("train.exact")));
  EXPECT_THAT(
      error_of([&] { on_cpu("refused", small({"--device.fake_order=1"})); }, ErrorKind::kUser),
      AllOf(HasSubstr("device.fake_order"), HasSubstr("device.kind=fake_cuda")));
}

TEST_F(GpuRun, RefusesAMachineWithoutWhatItNeeds) {
  const GpuReport gpus = probe_gpus();
  if (!gpus.problem.empty()) {
    EXPECT_THAT(error_of([&] { on_cpu("none", small({"--device.kind=cuda"})); }, ErrorKind::kUser),
                HasSubstr("device cuda:0 cannot be used: " + gpus.problem));
    EXPECT_EQ(on_cpu("auto", small({"--device.kind=auto", "--train.steps=3"})).outcome.step, 3);
  }
  EXPECT_THAT(
      error_of(
          [&] {
            on_gpu("small", small({"--device.fake_memory_mib=1", "--model.hidden_size=256"}));
          },
          ErrorKind::kResource),
      AllOf(HasSubstr("fake GPU has 1"), HasSubstr("train.recompute=full")));
}

TEST_F(GpuRun, SaysWhyAutoTakesTheCpuAndWhatThenDoesNothing) {
  const GpuReport gpus = probe_gpus();
  if (gpus.problem.empty()) GTEST_SKIP() << "auto takes a GPU here";
  comm::run_threads(1, {}, [&](comm::World& world) {
    TrainConfig config;
    config.device.kind = "auto";
    config.comm.gpu = "nccl";
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(is_gpu(*open_run_device(config, world)));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("device.kind=auto takes the CPU: " + gpus.problem),
                      HasSubstr("comm.gpu = nccl does nothing")));
  });
}

// The ranks of an island that is made of a CPU and a GPU.
TEST_F(GpuRun, RefusesRanksOfBothKinds) {
  const auto mixed = [&] {
    comm::run_threads(2, {.timeout_s = 60}, [&](comm::World& world) {
      TrainConfig config;
      atl::Settings settings = make_settings(config);
      configure_ranks(config, settings, "mixed",
                      small({world.rank() == 1 ? "--device.kind=fake_cuda" : "--device.kind=cpu"}));
      Trainer trainer(config, settings, world);
    });
  };
  EXPECT_THAT(error_of(mixed, ErrorKind::kUser),
              AllOf(HasSubstr("rank 1 computes on a GPU and rank 0 on a CPU"),
                    HasSubstr("device.kind to cuda or to cpu on all of them")));
}

TEST_F(GpuRun, KeepsTheCheckpointWhenTheGpuIsLost) {
  const Settings settings = small({"--checkpoint.every=1"});
  const Ended whole = on_gpu("whole", settings);
  const std::string message = lose_gpu("lost", settings, 150);
  EXPECT_THAT(message, AllOf(HasSubstr("the GPU is lost"), HasSubstr("The last checkpoint is"),
                             HasSubstr("goes on from there")));
  const Ended rest = on_gpu("lost", settings);
  EXPECT_EQ(rest.outcome.step, 4);
  EXPECT_TRUE(tensors(rest.outcome.checkpoint) == tensors(whole.outcome.checkpoint));
}

TEST_F(GpuRun, ARankWhoseGpuIsLostNamesTheCheckpointAndTheOtherEndsToo) {
  std::string lost, other;
  std::int64_t num_kernels = 0;
  const auto train = [&](std::int64_t kernels) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Captured captured;
    comm::run_threads(2, {.timeout_s = 60}, [&](comm::World& world) {
      TrainConfig config;
      atl::Settings settings = make_settings(config);
      const std::string after = world.rank() == 1 ? std::to_string(kernels) : "0";
      configure_ranks(config, settings, "lost",
                      small({"--train.micro_batch=1", "--checkpoint.every=1",
                             "--device.kind=fake_cuda", "--device.fake_lost_after=" + after}));
      try {
        Trainer(config, settings, world).run();
      } catch (const DeviceLostError& error) {
        lost = error.what();
        throw;
      } catch (const Error& error) {
        other = error.what();
        throw;
      }
    });
  };
  // More and more kernels, until it is lost behind a checkpoint.
  do {
    lost = other = "no error";
    error_of([&] { train(num_kernels += 150); }, ErrorKind::kResource);
  } while (lost.find("There is no checkpoint yet") != lost.npos);
  EXPECT_THAT(lost, AllOf(HasSubstr("step "), HasSubstr("the GPU is lost"),
                          HasSubstr("The last checkpoint is"), HasSubstr("goes on from there")));
  EXPECT_THAT(other, HasSubstr("the GPU is lost"));
}

TEST_F(GpuRun, IsRefusedWhereOthersHaveTakenTheMemory) {
  comm::run_threads(1, {}, [&](comm::World& world) {
    fake_cuda::FakeCudaDevice device({.total_memory = 1 << 20});
    check_memory_of(device, 3 << 18, world);
    const Buffer taken(device, 1 << 19);
    EXPECT_THAT(error_of([&] { check_memory_of(device, 3 << 18, world); }, ErrorKind::kResource),
                HasSubstr("of which"));
  });
}

}  // namespace
}  // namespace atl::train
