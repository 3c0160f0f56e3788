// Plans of GPUs that are not here: figures, memory of known models, the time that ops would take.

#include "atoll/plan/gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/parallel/gpu_models_testing.h"
#include "atoll/plan/memory.h"
#include "atoll/plan/roofline.h"
#include "atoll/plan/testing.h"
#include "atoll/train/config/recipe.h"

namespace atl::plan {
namespace {

using Arguments = std::vector<std::string>;

train::TrainConfig config_of(const Arguments& more) {
  return train::load_recipe("", small_recipe(more));
}

TEST(GpuPlan, GoesByAPartOfWhatIsStated) {
  const GpuFigures& h100 = gpu_figures_named("H100");
  const Figures bf16 =
      figures_of_gpu(h100, config_of({"--device.kind=cuda", "--train.dtype=bf16"}));
  EXPECT_DOUBLE_EQ(bf16.flops_per_s, 0.80 * 989e12);
  EXPECT_DOUBLE_EQ(bf16.bytes_per_s, 0.90 * 3350e9);
  EXPECT_NEAR(bf16.memory_gib, 79e9 / 0x1p30, 1e-9);
  EXPECT_EQ(bf16.overlap, 0);
  // Down to the host and up again; or by NVLink.
  EXPECT_DOUBLE_EQ(host_link(bf16, 8).gather_bytes_per_s, 0.80 * 32e9);
  const Figures nccl = figures_of_gpu(
      h100, config_of({"--device.kind=cuda", "--train.dtype=bf16", "--comm.gpu=nccl"}));
  EXPECT_DOUBLE_EQ(host_link(nccl, 8).gather_bytes_per_s, 0.80 * 450e9);
  const Figures f32 = figures_of_gpu(h100, config_of({"--device.kind=cuda"}));
  EXPECT_DOUBLE_EQ(f32.flops_per_s, 0.80 * 67e12);
}

TEST(GpuPlan, TimesAttentionAsKernelsReachIt) {
  const OpCase attention = {
      "attention/backward", OpCase::Bound::kArithmetic, 1e12, {8, 2048, 64}, {}};
  const auto seconds_on = [&](const char* gpu) {
    return seconds_of(figures_of_gpu(gpu_figures_named(gpu),
                                     config_of({"--device.kind=cuda", "--train.dtype=bf16"})),
                      attention);
  };
  EXPECT_DOUBLE_EQ(seconds_on("A100"), 1 / (0.5 * 312));
  EXPECT_DOUBLE_EQ(seconds_on("H200"), 1 / (0.23 * 989));
}

TEST(GpuPlan, GivesEachCallTheStartOfAKernel) {
  const Figures h100 = figures_of_gpu(gpu_figures_named("H100"), config_of({"--device.kind=cuda"}));
  EXPECT_DOUBLE_EQ(seconds_of(h100, {"rms_norm/forward", OpCase::Bound::kCopying, 1, {1, 1}, {}}),
                   5e-6);
  EXPECT_EQ(parse_figures(to_toml(h100), "test"), h100);
}

TEST(GpuPlan, MeasuresTheGpuAtHand) {
  fake_cuda::FakeCudaDevice device({.seed = 1, .threads = 1});
  const train::TrainConfig config = config_of({"--device.kind=fake_cuda", "--train.dtype=bf16"});
  const Figures known = measure_gpu(device, &gpu_figures_named("L40S"), config, 32);
  EXPECT_GT(known.flops_per_s, 0);
  EXPECT_GT(known.bytes_per_s, 0);
  EXPECT_TRUE(std::isfinite(known.flops_per_s) && std::isfinite(known.bytes_per_s));
  EXPECT_DOUBLE_EQ(host_link(known, 8).gather_bytes_per_s, 0.80 * 16e9);
  EXPECT_NE(known.machine.find("measured"), std::string::npos) << known.machine;
  const Figures unknown = measure_gpu(device, nullptr, config, 32);
  EXPECT_NE(unknown.machine.find("assumed"), std::string::npos) << unknown.machine;
  EXPECT_EQ(unknown.rates.count("attention/forward 1x1024x1024"), 0U);
}

TEST(GpuPlan, RefusesWhatHasNoFigures) {
  EXPECT_THROW(figures_for_gpu("GTX 1080", config_of({"--device.kind=cuda"})), Error);
  EXPECT_THROW(figures_for_gpu("", config_of({"--device.kind=fake_cuda"})), Error);
  const auto in_8_bits = [](const char* scaling) {
    return config_of({"--device.kind=cuda", "--train.dtype=bf16", scaling});
  };
  EXPECT_THROW(figures_for_gpu("A100", in_8_bits("--train.fp8=tensor")), Error);
  EXPECT_THROW(figures_for_gpu("B200", in_8_bits("--train.fp8=blocks")), Error);
  EXPECT_NO_THROW(figures_for_gpu("4090", in_8_bits("--train.fp8=tensor")));
  EXPECT_NO_THROW(figures_for_gpu("H100", in_8_bits("--train.fp8=blocks")));
}

TEST(GpuPlan, SetsTheKindOfDevice) {
  const auto has_cuda = [](const Arguments& all) {
    return std::count(all.begin(), all.end(), "--device.kind=cuda");
  };
  EXPECT_EQ(has_cuda(overrides_for_gpu("", small_recipe())), 1);
  EXPECT_EQ(has_cuda(overrides_for_gpu("", small_recipe({"--device.kind=cuda"}))), 1);
  const Arguments automatic = overrides_for_gpu("", small_recipe({"--device.kind=auto"}));
  EXPECT_EQ(has_cuda(automatic), 1);
  EXPECT_EQ(std::count(automatic.begin(), automatic.end(), "--device.kind=auto"), 0);
  EXPECT_THROW(overrides_for_gpu("", small_recipe({"--device.kind=cpu"})), Error);
}

// What the ops of a step take at an H200's measured rates, beside the sums that were made by hand
// for these models: 43.5 ms for 124M (less embeddings, biases' sums and the gradient norm, of 0.9
// ms, and as if attention ran at cuDNN's rate: 6.5 in place of 8.9 ms), 26.4 ms at its peak.
TEST(GpuPlan, AddsUpTheOpsOfAStep) {
  const Figures h200 = figures_of_gpu(gpu_figures_named("H200"),
                                      config_of({"--device.kind=cuda", "--train.dtype=bf16"}));
  const auto rows =
      roofline(h200, test::gpt2_124m(), {.sequences = 32, .context = 1024, .dtype = Dtype::kBf16});
  double flops = 0, seconds = 0;
  for (const RooflineRow& row : rows) {
    if (row.is_arithmetic) flops += row.amount;
    seconds += row.seconds;
  }
  // By hand 26.1: backward attention is five products here, and four of a forward pass's size
  // there.
  EXPECT_NEAR(flops, 26.45e12, 0.05e12);
  EXPECT_NEAR(seconds, 45.5e-3, 2e-3);
  const std::string table = roofline_table(rows);
  EXPECT_NE(table.find("head/loss_and_gradients"), std::string::npos) << table;
  EXPECT_EQ(table.find("swiglu"), std::string::npos) << table;
}

struct Golden {
  const char* name;
  Arguments model;
  std::int64_t vocabulary;
  int gpus;
  std::int64_t sequences, context;
  const char* recompute;
  double bytes;
};

const Arguments k124m = {"--model.family=gpt2",
                         "--model.hidden_size=768",
                         "--model.num_hidden_layers=12",
                         "--model.num_attention_heads=12",
                         "--model.num_key_value_heads=12",
                         "--model.intermediate_size=3072",
                         "--model.max_position_embeddings=8192"};
const Arguments k1b = {"--model.hidden_size=2048",        "--model.num_hidden_layers=16",
                       "--model.num_attention_heads=32",  "--model.num_key_value_heads=8",
                       "--model.intermediate_size=8192",  "--model.max_position_embeddings=8192",
                       "--model.tie_word_embeddings=true"};
const Arguments k8b = {"--model.hidden_size=4096",         "--model.num_hidden_layers=32",
                       "--model.num_attention_heads=32",   "--model.num_key_value_heads=8",
                       "--model.intermediate_size=14336",  "--model.max_position_embeddings=8192",
                       "--model.tie_word_embeddings=false"};

double planned(const Golden& golden) {
  Arguments all = golden.model;
  for (const std::string& one :
       {std::string("--device.kind=cuda"), std::string("--train.dtype=bf16"),
        fmt::format("--dp.zero={}", golden.gpus > 1 ? 3 : 0),
        fmt::format("--train.recompute={}", golden.recompute),
        fmt::format("--train.context={}", golden.context),
        fmt::format("--train.micro_batch={}", golden.sequences),
        fmt::format("--train.batch_size={}", golden.sequences * golden.gpus)}) {
    all.push_back(one);
  }
  return static_cast<double>(largest_memory(config_of(all), golden.vocabulary, golden.gpus).bytes);
}

// A golden number is written with three digits after the point. What is planned for a GPU does not
// depend on the CPU that plans.
constexpr double kRounding = 0.5e6;

// On 80 GB and on 141 GB, but for 1 GB of CUDA's own.
TEST(GpuPlan, HasGoldenMemory) {
  const Golden on_80[] = {
      {"124M, 64 sequences", k124m, 50304, 1, 64, 1024, "none", 25.317e9},
      {"1B, 16 sequences", k1b, 128256, 1, 16, 1024, "none", 46.549e9},
      {"8B on 4", k8b, 128256, 4, 1, 4096, "full", 42.712e9},
      {"8B on 8", k8b, 128256, 8, 2, 4096, "full", 27.377e9},
  };
  const Golden on_141[] = {
      {"124M, 256 sequences", k124m, 50304, 1, 256, 1024, "none", 86.840e9},
      {"1B, 32 sequences", k1b, 128256, 1, 32, 1024, "none", 66.650e9},
      {"8B on 2", k8b, 128256, 2, 1, 4096, "full", 78.847e9},
      {"8B on 8", k8b, 128256, 8, 8, 4096, "full", 43.681e9},
  };
  for (const Golden& golden : on_80) {
    EXPECT_NEAR(planned(golden), golden.bytes, kRounding) << golden.name;
    EXPECT_LT(planned(golden), 79e9) << golden.name;
  }
  for (const Golden& golden : on_141) {
    EXPECT_NEAR(planned(golden), golden.bytes, kRounding) << golden.name;
    EXPECT_LT(planned(golden), 140e9) << golden.name;
  }
  EXPECT_GT(planned({"8B on 1", k8b, 128256, 1, 1, 4096, "full", 0}), 140e9);
}

}  // namespace
}  // namespace atl::plan
