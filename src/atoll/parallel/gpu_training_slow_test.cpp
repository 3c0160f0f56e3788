// Whole training steps on the fake GPU: the code that a real one runs, but for the instructions.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/nn/models/family.h"
#include "atoll/ops/testing.h"
#include "atoll/optim/clip.h"
#include "atoll/optim/optimizer.h"
#include "atoll/optim/registry.h"
#include "atoll/parallel/runner/runner.h"
#include "atoll/parallel/store/store_single.h"
#include "atoll/tensor/host_access.h"

namespace atl::parallel {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kLength = 12;

nn::ModelConfig tiny_model(const std::string& family, std::int64_t head_dim) {
  nn::ModelConfig config;
  config.family = family;
  config.vocab_size = 61;
  config.hidden_size = 4 * head_dim;
  config.num_layers = 2;
  config.heads = {.num_heads = 4, .num_kv_heads = family == "gpt2" ? 4 : 2, .head_dim = head_dim};
  config.intermediate_size = 40;
  config.max_positions = 32;
  config.initializer_range = 0.2;
  config.qk_norm = family == "qwen3" || family == "qwen3_moe" || family == "gemma3_text";
  if (family == "glm4") config.rotary_dim = 4;
  if (family == "gemma3_text") {
    config.embedding_scale = 2;
    config.local_rope_theta = 100;
    config.sliding_window = 5;
    config.windowed_layers = {true, false};
  }
  if (family == "mixtral" || family == "qwen3_moe") {
    // A plain MLP in one block of qwen3_moe, whose weights are not divided by their sum.
    const bool is_mixtral = family == "mixtral";
    config.experts = {.num_experts = 4,
                      .top_k = 2,
                      .intermediate_size = is_mixtral ? config.intermediate_size : 24,
                      .normalize = is_mixtral};
    if (!is_mixtral) config.experts.dense_layers = {true, false};
  }
  if (family == "gpt2") {
    config.activation = "gelu_new";
    config.attention_bias = config.mlp_bias = config.tie_embeddings = true;
  }
  return config;
}

struct Training {
  std::string family = "llama";
  Dtype dtype = Dtype::kBf16;
  optim::Masters masters = optim::Masters::kF32;
  double dropout = 0.1;
  bool documents = false;
  int steps = 20;
  std::int64_t head_dim = 6;  // 8: attention uses tensor cores, in bf16
  std::string optimizer = "adamw";
  double capacity_factor = 0;  // of experts
  std::uint64_t seed = 3;
};

struct Outcome {
  std::vector<double> losses;  // mean of each step
  std::vector<std::byte> values;
  std::vector<double> expert_load;  // what routers have done
};

// Two micro-batches a step, which the second step's overwrite at once: memory of a loader is used
// again as soon as a call returns.
Outcome train(Device& device, const Training& setup) {
  const auto stream = device.open_stream();
  const auto model = nn::build_model(
      tiny_model(setup.family, setup.head_dim),
      {.dtype = setup.dtype,
       .dropout = setup.dropout,
       .experts = {
           .balance_loss = 0.02, .z_loss = 0.001, .capacity_factor = setup.capacity_factor}});
  SingleStore store(*model, true);
  Runner runner(*model, store, Use::kTrain, kBatch, kLength);
  const auto optimizer = optim::make_optimizer({.kind = setup.optimizer, .masters = setup.masters},
                                               store.flat(), store.ranges());
  MemoryPlan plan;
  store.request(plan);
  runner.request(plan);
  optimizer->request(plan);
  const int scratch = plan.request_forever("scratch", "scratch", optimizer->scratch_bytes());
  plan.place();
  const Arena arena(device, plan);
  store.bind(arena);
  runner.bind(arena);
  optimizer->bind(arena);
  Run run = {.stream = stream.get(), .seed = setup.seed};
  store.initialise(run, setup.seed + 2);
  optimizer->init_masters(run, store.values());

  test::OwnedTensor<std::int32_t> tokens({kBatch, kLength}), targets({kBatch, kLength});
  test::OwnedTensor<std::int32_t> positions({kBatch, kLength});
  for (std::int64_t i = 0; i < positions.size(); ++i) {
    positions[i] = static_cast<std::int32_t>(i % kLength % 5);
  }
  Outcome outcome;
  const Spec loss_spec = {Dtype::kF32, {kBatch, kLength}};
  const Buffer losses(device, 2 * loss_spec.bytes(), MemoryKind::kHost);
  for (int step = 0; step < setup.steps; ++step) {
    run.step = step;
    run.loss_scale = 1.0 / (2 * kBatch * kLength);
    for (std::int64_t micro = 0; micro < 2; ++micro) {
      // Two batches that come again, so that there is something to learn.
      tokens = test::random_tokens({kBatch, kLength}, 61, static_cast<std::uint64_t>(10 + micro));
      targets = test::random_tokens({kBatch, kLength}, 61, static_cast<std::uint64_t>(20 + micro));
      targets[3] = kIgnoreTarget;
      const Batch batch = {.tokens = tokens,
                           .targets = targets,
                           .first_sample = (2 * step + micro) * kBatch,
                           .positions = setup.documents ? positions.view() : Tensor()};
      store.begin_round({micro, micro == 1});
      runner.forward_backward(run, {&batch, 1});
      queue_copy(*stream, runner.losses(),
                 {static_cast<std::byte*>(losses.data()) +
                      static_cast<std::size_t>(micro) * loss_spec.bytes(),
                  loss_spec});
      std::fill(tokens.values.begin(), tokens.values.end(), -7);
      std::fill(targets.values.begin(), targets.values.end(), -7);
    }
    const double norm = store.grad_norm(run);  // waits
    double sum = 0;
    for (std::int64_t i = 0; i < 2 * kBatch * kLength; ++i) {
      sum += static_cast<double>(static_cast<const float*>(losses.data())[i]);
    }
    outcome.losses.push_back(sum * run.loss_scale);
    Run update = run;
    update.scratch = {arena.data(scratch), optimizer->scratch_bytes()};
    optimizer->update(update,
                      {.lr = 0.01, .grad_scale = optim::clip_scale(norm, 1.0), .step = step + 1},
                      store.values(), store.grads());
  }
  stream->synchronize();
  const HostRead read(store.values());
  outcome.values.assign(read.bytes().begin(), read.bytes().end());
  for (const auto& load : model->expert_loads) {
    load->collect();
    outcome.expert_load.insert(outcome.expert_load.end(), load->sums.begin(), load->sums.end());
    load->clear();
    load->collect();
    EXPECT_EQ(load->sum(nn::ExpertLoad::kTokens), 0);
  }
  return outcome;
}

Outcome on_cpu(const Training& setup) {
  const auto device = open_cpu(2);
  return train(*device, setup);
}

Outcome on_gpu(const Training& setup, std::uint64_t order) {
  fake_cuda::FakeCudaDevice device({.seed = order, .threads = 2});
  return train(device, setup);
}

double mean_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  return info.param;
}

// Tests whose name begins with Nightly are left to ./dev nightly.
class GpuTraining : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GpuTraining,
                         testing::Values("llama", "gpt2", "qwen3", "mixtral", "qwen3_moe", "glm4",
                                         "gemma3_text"),
                         name_of);

TEST_P(GpuTraining, StepsInF32GoAsOnTheCpu) {
  const Training setup = {.family = GetParam(), .dtype = Dtype::kF32, .steps = 6};
  const Outcome cpu = on_cpu(setup), gpu = on_gpu(setup, 2);
  EXPECT_LT(cpu.losses.back(), cpu.losses.front()) << "nothing was learned";
  // Sums in another order; and AdamW's first updates go by the sign of a gradient.
  EXPECT_LT(largest_difference(cpu.losses, gpu.losses), 1e-3);
}

TEST(GpuTrainingExperts, AreAsBusyAsOnTheCpu) {
  // Two steps: later a token near a tie may go elsewhere.
  for (const double capacity_factor : {0.0, 1.1}) {
    for (const char* family : {"mixtral", "qwen3_moe"}) {
      const Training setup = {
          .family = family, .dtype = Dtype::kF32, .steps = 2, .capacity_factor = capacity_factor};
      const Outcome cpu = on_cpu(setup), gpu = on_gpu(setup, 4);
      EXPECT_LT(largest_difference(cpu.losses, gpu.losses), 1e-4) << family;
      ASSERT_EQ(cpu.expert_load.size(), gpu.expert_load.size());
      for (std::size_t i = 0; i < cpu.expert_load.size(); ++i) {
        EXPECT_NEAR(gpu.expert_load[i], cpu.expert_load[i], 1e-4 * cpu.expert_load[i])
            << family << " " << i;
      }
      // Four experts, then tokens and dropped choices.
      EXPECT_EQ(gpu.expert_load[4], 2 * 2 * kBatch * kLength);
      EXPECT_EQ(gpu.expert_load[5] > 0, capacity_factor > 0) << family;
    }
  }
}

TEST(GpuTrainingOptimizers, StepInF32AsOnTheCpu) {
  for (const optim::OptimizerKind& kind : optim::optimizer_kinds()) {
    const Training setup = {.dtype = Dtype::kF32, .steps = 6, .optimizer = kind.name};
    const Outcome cpu = on_cpu(setup), gpu = on_gpu(setup, 2);
    EXPECT_LT(cpu.losses.back(), cpu.losses.front()) << kind.name << ": nothing was learned";
    EXPECT_LT(largest_difference(cpu.losses, gpu.losses), 1e-3) << kind.name;
  }
}

// What rounding to bf16 moves losses by hangs on the draws. Of 16 seeds the GPU's mean over the
// steps was 0.6 to 1.9 of the CPU's in single runs, and 0.92 to 1.14 over all of a family.
constexpr std::uint64_t kSeeds[] = {3, 4, 5};

// Of runs of 20 steps in bf16, how far losses are from the CPU's in f32.
struct Bf16Cost {
  double gpu = 0, cpu = 0, between = 0;          // means over all steps, added up over runs
  double largest_between = 0, largest_cost = 0;  // at most in any step of all runs

  template <typename OnGpu>
  void add(const Training& setup, OnGpu&& train_on_gpu) {
    Training wide = setup;
    wide.dtype = Dtype::kF32;
    const Outcome on_host = on_cpu(setup), there = train_on_gpu(setup), exact = on_cpu(wide);
    EXPECT_LT(there.losses.back(), 0.6 * there.losses.front()) << "nothing was learned";
    gpu += mean_difference(there.losses, exact.losses);
    cpu += mean_difference(on_host.losses, exact.losses);
    between += mean_difference(on_host.losses, there.losses);
    largest_between = std::max(largest_between, largest_difference(on_host.losses, there.losses));
    largest_cost = std::max(largest_cost, largest_difference(on_host.losses, exact.losses));
  }
};

// With heads of each of these widths. 8: attention uses tensor cores.
void expect_bf16_within_its_cost(const char* family, const std::vector<std::int64_t>& head_dims) {
  double apart = 0, cost = 0;
  for (const std::int64_t head_dim : head_dims) {
    Bf16Cost all;
    for (const std::uint64_t seed : kSeeds) {
      all.add({.family = family, .documents = true, .head_dim = head_dim, .seed = seed},
              [](const Training& setup) { return on_gpu(setup, 3); });
    }
    apart = std::max(apart, all.largest_between);
    cost = std::max(cost, all.largest_cost);
    // Both round to bf16, in places that are not the same: no further apart than two roundings.
    EXPECT_LT(all.gpu, 2 * all.cpu) << head_dim;
    EXPECT_LT(all.between, 2 * all.cpu) << head_dim;
  }
  EXPECT_LT(apart, 2 * cost);
}

class GpuTrainingRounding : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GpuTrainingRounding,
                         testing::Values("gpt2", "qwen3", "mixtral", "qwen3_moe"), name_of);

TEST_P(GpuTrainingRounding, TwentyStepsStayWithinWhatBf16Costs) {
  expect_bf16_within_its_cost(GetParam(), {8});
}

class GpuTrainingWidths : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GpuTrainingWidths, testing::Values("llama"), name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuTrainingWidths,
                         testing::Values("gpt2", "qwen3", "mixtral", "qwen3_moe"), name_of);

TEST_P(GpuTrainingWidths, TwentyStepsInBf16StayWithinWhatBf16Costs) {
  expect_bf16_within_its_cost(GetParam(), {6, 8});
}

void expect_same_bits_in_every_order(const Training& setup) {
  const Outcome first = on_gpu(setup, 0);
  for (std::uint64_t order = 1; order < 8; ++order) {
    const Outcome other = on_gpu(setup, order);
    EXPECT_EQ(other.losses, first.losses) << order;
    EXPECT_EQ(other.values, first.values) << order;
  }
}

class GpuTrainingOrders : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GpuTrainingOrders, testing::Values("llama", "qwen3_moe"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Nightly, GpuTrainingOrders, testing::Values("gpt2", "qwen3", "mixtral"),
                         name_of);

TEST_P(GpuTrainingOrders, OfThreadsAndStreamsGiveTheSameBits) {
  expect_same_bits_in_every_order({.family = GetParam(),
                                   .masters = optim::Masters::kStochastic,
                                   .documents = true,
                                   .steps = 2,
                                   .head_dim = 8});
}

TEST(GpuTrainingF32, EveryOrderOfThreadsAndStreamsGivesTheSameBits) {
  expect_same_bits_in_every_order({.dtype = Dtype::kF32, .steps = 2});
}

TEST(GpuTrainingBf16, OnARealGpuTwentyStepsGoAsOnTheCpuAndRepeat) {
  if (!probe_gpus().built_in || !probe_gpus().problem.empty()) {
    GTEST_SKIP() << "no GPU, or built without nvcc";
  }
  const auto device = open_cuda(0);
  Bf16Cost all;
  for (const char* family : {"llama", "gpt2", "qwen3", "mixtral", "qwen3_moe"}) {
    for (const std::int64_t head_dim : {6, 8}) {
      for (const std::uint64_t seed : kSeeds) {
        all.add({.family = family, .documents = true, .head_dim = head_dim, .seed = seed},
                [&](const Training& setup) {
                  Outcome gpu = train(*device, setup);
                  EXPECT_EQ(train(*device, setup).values, gpu.values) << family << head_dim;
                  return gpu;
                });
      }
    }
  }
  // Of so many runs the draws say little.
  EXPECT_LT(all.gpu, 1.25 * all.cpu);
}

}  // namespace
}  // namespace atl::parallel
