// How long each op of a training step, and products of generation, take on a GPU, beside what its
// memory and tensor cores can do, measured just before. bench/cuda/all.sh runs it.
//
//   gpu_ops_bench [--model=124m|1b|moe] [--sequences=32] [--context=1024] [--fake]
//
// An own kernel passes when it moves its bytes at 85% of the rate of a copy; products and attention
// have their rate printed, and what a copy would have done in the time of some launches has no bar.
// Attention by cuDNN is timed beside our own, where it can be used. --fake runs two rows on the
// fake GPU: it shows that the program works, and no time. Exit code 1 when a kernel is below its
// bar, 2 when there is no GPU.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/device/choose_device.h"
#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/device/gpu_support.h"
#include "atoll/device/sdpa.h"
#include "atoll/ops/attention/gpu_attention.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/plan/code_op_cases.h"
#include "atoll/plan/fp8_op_cases.h"
#include "atoll/plan/generation_op_cases.h"
#include "atoll/plan/op_cases.h"

namespace atl {
namespace {

constexpr int kCalls = 10;  // in a measurement
constexpr int kRounds = 5;
constexpr double kBar = 0.85;  // of the rate of a copy
// Of what a copy does faster, launches are most: some of a few microseconds each.
constexpr double kLeastSeconds = 20e-6;

// One block of Qwen3-MoE of 30B.
nn::ModelConfig model_with_experts() {
  nn::ModelConfig config;
  config.family = "qwen3_moe";
  config.vocab_size = 151936;
  config.hidden_size = 2048;
  config.num_layers = 1;
  config.heads = {.num_heads = 32, .num_kv_heads = 4, .head_dim = 128};
  config.intermediate_size = 6144;
  config.max_positions = 8192;
  config.qk_norm = true;
  config.experts = {.num_experts = 128, .top_k = 8, .intermediate_size = 768, .normalize = true};
  return config;
}

// GPT-2 of 124M, Llama 3.2 of 1B, or the one with experts.
nn::ModelConfig model_of(const std::string& name) {
  if (name == "moe") return model_with_experts();
  nn::ModelConfig config;
  const bool is_small = name == "124m";
  config.family = is_small ? "gpt2" : "llama";
  config.vocab_size = is_small ? 50304 : 128256;
  config.hidden_size = is_small ? 768 : 2048;
  config.num_layers = is_small ? 12 : 16;
  config.heads = {
      .num_heads = is_small ? 12 : 32, .num_kv_heads = is_small ? 12 : 8, .head_dim = 64};
  config.intermediate_size = is_small ? 3072 : 8192;
  config.max_positions = 8192;
  config.tie_embeddings = true;
  if (is_small) {
    config.activation = "gelu_new";
    config.attention_bias = config.mlp_bias = true;
  }
  return config;
}

// Seconds of one call, the median of some rounds, by the GPU's own clock.
double seconds_of(Device& device, Stream& stream, const std::function<void()>& call) {
  const auto begin = device.make_event(), end = device.make_event();
  call();
  stream.synchronize();
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    begin->record(stream);
    for (int i = 0; i < kCalls; ++i) call();
    end->record(stream);
    end->wait();
    seconds.push_back(end->seconds_since(*begin) / kCalls);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRounds / 2];
}

// Bytes a second that a copy reads and writes.
double copy_rate(Device& device, Stream& stream, std::int64_t bytes) {
  const Buffer from(device, static_cast<std::size_t>(bytes)),
      to(device, static_cast<std::size_t>(bytes));
  const double seconds = seconds_of(device, stream, [&] {
    stream.copy(to.data(), from.data(), static_cast<std::size_t>(bytes));
  });
  return 2 * static_cast<double>(bytes) / seconds;
}

// Attention by cuDNN, which our own is to be compared with.
void measure_cudnn(Device& device, Stream& stream, const nn::ModelConfig& config,
                   const plan::OpSizes& sizes, bool is_fake) {
  const std::string problem = is_fake ? "" : cudnn_problem();
  if (!problem.empty()) {
    fmt::print("\nno attention by cuDNN: {}\n", problem);
    return;
  }
  ops::set_gpu_attention(ops::GpuAttention::kCudnn);
  for (const plan::OpCase& one : plan::attention_op_cases(config, sizes)) {
    const double seconds = seconds_of(device, stream, one.prepare({.stream = &stream}));
    fmt::print("| {}, cuDNN | {:.1f} | {:.1f} TFLOP/s | |\n", one.name, 1e6 * seconds,
               one.amount / seconds / 1e12);
  }
  ops::set_gpu_attention(ops::GpuAttention::kOwn);
}

int measure(Device& device, const nn::ModelConfig& config, const plan::OpSizes& sizes,
            bool is_fake) {
  const auto stream = device.open_stream();
  const Run run = {.stream = stream.get()};
  const double copies = copy_rate(device, *stream, is_fake ? 1 << 12 : std::int64_t{1} << 30);
  fmt::print("{}: a copy moves {:.0f} GB/s\n\n| op | us | rate | of a copy |\n|---|---|---|---|\n",
             device.name(), copies / 1e9);
  std::vector<plan::OpCase> cases = plan::training_op_cases(config, sizes);
  if (config.experts.num_experts > 0) {
    for (plan::OpCase& one : plan::expert_op_cases(config, sizes)) cases.push_back(std::move(one));
  }
  const std::int64_t elements = is_fake ? 1000 : plan::kOptimizerElements;
  for (plan::OpCase& one : plan::optimizer_op_cases(config, sizes.dtype, elements)) {
    cases.push_back(std::move(one));
  }
  for (plan::OpCase& one : plan::code_op_cases(elements)) cases.push_back(std::move(one));
  for (plan::OpCase& one : plan::generation_op_cases(config)) cases.push_back(std::move(one));
  // The fake GPU is one of compute capability 9.0.
  const auto [major, minor] = is_fake ? std::pair(9, 0) : compute_capability();
  if (fp8_problem(major, minor, false).empty()) {
    const bool has_blocks = fp8_problem(major, minor, true).empty();
    for (plan::OpCase& one : plan::fp8_op_cases(config, sizes, has_blocks)) {
      cases.push_back(std::move(one));
    }
  }
  int below = 0;
  for (const plan::OpCase& one : cases) {
    const double seconds = seconds_of(device, *stream, one.prepare(run));
    const double rate = one.amount / seconds;
    if (one.bound == plan::OpCase::Bound::kArithmetic) {
      fmt::print("| {} | {:.1f} | {:.1f} TFLOP/s | |\n", one.name, 1e6 * seconds, rate / 1e12);
      continue;
    }
    // What only reads has as much of the memory's time for it.
    const double share = rate / copies;
    const bool passes = share >= kBar || one.amount / copies < kLeastSeconds;
    below += passes ? 0 : 1;
    fmt::print("| {} | {:.1f} | {:.0f} GB/s | {:.0f}%{} |\n", one.name, 1e6 * seconds, rate / 1e9,
               100 * share, passes ? "" : ", below the bar");
  }
  measure_cudnn(device, *stream, config, sizes, is_fake);
  fmt::print("\n{} ops, {} below {:.0f}% of a copy\n", cases.size(), below, 100 * kBar);
  return below == 0 || is_fake ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app("times ops on a GPU");
  std::string model = "124m";
  plan::OpSizes sizes = {.sequences = 32, .context = 1024, .dtype = Dtype::kBf16};
  bool is_fake = false;
  app.add_option("--model", model, "GPT-2 of 124m, Llama of 1b, or moe: a block with experts")
      ->check(CLI::IsMember({"124m", "1b", "moe"}));
  app.add_option("--sequences", sizes.sequences, "of a micro-batch");
  app.add_option("--context", sizes.context, "tokens of a sequence");
  app.add_flag("--fake", is_fake, "on the fake GPU, whose times mean nothing");
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // what is measured is told at once
  nn::ModelConfig config = model_of(model);
  if (is_fake) {
    config.vocab_size = 61;
    config.hidden_size = 32;
    config.heads = {.num_heads = 4, .num_kv_heads = 4, .head_dim = 8};
    config.intermediate_size = 64;
    if (config.experts.num_experts > 0) {
      config.experts = {.num_experts = 4, .top_k = 2, .intermediate_size = 16};
    }
    sizes.sequences = 1;
    sizes.context = 2;
    fake_cuda::FakeCudaDevice device({.threads = 2});
    return measure(device, config, sizes, true);
  }
  const GpuReport report = probe_gpus();
  if (!report.built_in || !report.problem.empty()) {
    fmt::print(stderr, "error: {}\n",
               report.built_in ? report.problem : "this was built without CUDA");
    return 2;
  }
  const auto device = open_cuda(0, static_cast<int>(std::thread::hardware_concurrency()));
  return measure(*device, config, sizes, false);
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  try {
    return atl::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
