// How fast the ops are, and what part of the machine that is. Each line has the rate of the median
// call and of the best one, and, for arithmetic, the best as a percentage of `peak`: the
// multiply-adds on registers alone, on as many threads, just before. Peak is a best of many too:
// noise only ever slows a call down, so best against best holds on a busy machine.
//
//   ops_bench --benchmark_min_time=0.3
//   ops_bench --benchmark_filter=gpt2

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "atoll/ops/adamw.h"
#include "atoll/ops/attention.h"
#include "atoll/ops/cross_entropy.h"
#include "atoll/ops/lion.h"
#include "atoll/ops/matmul.h"
#include "atoll/ops/muon.h"
#include "atoll/ops/norm.h"
#include "atoll/ops/peak.h"
#include "atoll/ops/sgd.h"
#include "atoll/ops/testing.h"

namespace atl {
namespace {

using test::OwnedTensor;
using test::random_tensor;
using test::TestRun;

constexpr int kThreadCounts[] = {1, 2};
constexpr std::int64_t kTokens = 2048;

/// What one call does: floating-point operations, or the bytes of memory that bound it.
struct Work {
  double flops = 0;
  double bytes = 0;
};

void measure(benchmark::State& state, Run& run, Work work, const std::function<void()>& call) {
  const double peak = ops::measure_peak_flops(run);
  call();  // makes primitives, touches memory
  std::vector<double> seconds;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    seconds.push_back(elapsed.count());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  const double best = seconds.front();
  if (work.flops > 0) {
    state.counters["GFLOP/s"] = work.flops / median / 1e9;
    state.counters["best"] = work.flops / best / 1e9;
    state.counters["peak"] = peak / 1e9;
    state.counters["%"] = 100 * work.flops / best / peak;
  } else {
    state.counters["GB/s"] = work.bytes / median / 1e9;
    state.counters["best"] = work.bytes / best / 1e9;
  }
}

/// Registers `body(state, run)` for each thread count.
void add(const std::string& name, std::function<void(benchmark::State&, Run&)> body) {
  for (const int threads : kThreadCounts) {
    benchmark::RegisterBenchmark((name + "/threads:" + std::to_string(threads)).c_str(),
                                 [body, threads](benchmark::State& state) {
                                   TestRun run(threads, std::size_t{768} << 20);
                                   body(state, run);
                                 })
        ->UseRealTime();
  }
}

/// T: what all operands are stored in, but for a weight gradient, which is f32.
template <typename T>
void add_matmul(const std::string& name, ops::Transpose transpose, std::int64_t m, std::int64_t n,
                std::int64_t k, bool accumulate) {
  add(name, [=](benchmark::State& state, Run& run) {
    const bool tn = transpose == ops::Transpose::kTN;
    const bool nt = transpose == ops::Transpose::kNT;
    auto a = random_tensor<T>(tn ? Shape{k, m} : Shape{m, k}, 1);
    auto b = random_tensor<T>(nt ? Shape{n, k} : Shape{k, n}, 2);
    OwnedTensor<float> gradient(tn ? Shape{m, n} : Shape{0, 0});
    OwnedTensor<T> activations(tn ? Shape{0, 0} : Shape{m, n});
    const Tensor c = tn ? gradient.view() : activations.view();
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n * k);
    measure(state, run, {flops, 0}, [&] { ops::matmul(run, transpose, a, b, c, {}, accumulate); });
  });
}

/// The three products of a Linear from `in` to `out` features on kTokens tokens.
template <typename T = float>
void add_linear(const std::string& name, std::int64_t in, std::int64_t out) {
  add_matmul<T>(name + "/forward", ops::Transpose::kNT, kTokens, out, in, false);
  add_matmul<T>(name + "/input_gradient", ops::Transpose::kNN, kTokens, in, out, false);
  add_matmul<T>(name + "/weight_gradient", ops::Transpose::kTN, out, in, kTokens, true);
}

template <typename T = float>
void add_generation(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out) {
  add(name, [=](benchmark::State& state, Run& run) {
    auto x = random_tensor<T>({rows, in}, 1);
    auto weight = random_tensor<T>({out, in}, 2);
    OwnedTensor<T> y({rows, out});
    measure(state, run, {0, static_cast<double>(weight.view().bytes())},
            [&] { ops::matmul(run, ops::Transpose::kNT, x, weight, y); });
  });
}

template <typename T = float>
void add_cross_entropy(const std::string& name, std::int64_t rows, std::int64_t width,
                       std::int64_t vocab) {
  add(name, [=](benchmark::State& state, Run& run) {
    auto x = random_tensor<T>({rows, width}, 1);
    auto weight = random_tensor<T>({vocab, width}, 2, 0.02F);
    auto targets = test::random_tokens({rows}, vocab, 3);
    OwnedTensor<float> loss({rows});
    OwnedTensor<T> dx({rows, width});
    OwnedTensor<float> dweight({vocab, width});
    const double flops = 6.0 * static_cast<double>(rows) * static_cast<double>(width * vocab);
    measure(state, run, {flops, 0},
            [&] { ops::linear_cross_entropy(run, 1e-3, x, weight, targets, loss, dx, dweight); });
  });
}

void add_attention(const std::string& name, std::int64_t batch, std::int64_t length,
                   const ops::HeadLayout& heads) {
  const Shape qkv_shape = {batch, length, heads.qkv_width()};
  const Shape out_shape = {batch, length, heads.query_width()};
  const Shape lse_shape = {batch, heads.num_heads, length};
  const double scale = 1 / std::sqrt(static_cast<double>(heads.head_dim));
  // Two products forward, five backward, over the half of each T x T square that is not masked.
  const double product =
      static_cast<double>(batch * length) * static_cast<double>(length * heads.query_width());
  add(name + "/forward", [=](benchmark::State& state, Run& run) {
    auto qkv = random_tensor<float>(qkv_shape, 1);
    OwnedTensor<float> out(out_shape);
    OwnedTensor<float> lse(lse_shape);
    measure(state, run, {2 * product, 0},
            [&] { ops::attention_forward(run, heads, scale, {}, qkv, out, lse); });
  });
  add(name + "/backward", [=](benchmark::State& state, Run& run) {
    auto qkv = random_tensor<float>(qkv_shape, 1);
    auto dout = random_tensor<float>(out_shape, 2);
    OwnedTensor<float> out(out_shape);
    OwnedTensor<float> lse(lse_shape);
    OwnedTensor<float> dqkv(qkv_shape);
    ops::attention_forward(run, heads, scale, {}, qkv, out, lse);
    measure(state, run, {5 * product, 0},
            [&] { ops::attention_backward(run, heads, scale, {}, qkv, out, lse, dout, dqkv); });
  });
}

void add_norms(std::int64_t width) {
  const double bytes = 8.0 * static_cast<double>(kTokens * width);  // reads x, writes y
  add("rms_norm/forward", [=](benchmark::State& state, Run& run) {
    auto x = random_tensor<float>({kTokens, width}, 1);
    auto weight = random_tensor<float>({width}, 2);
    OwnedTensor<float> y({kTokens, width});
    OwnedTensor<float> rstd({kTokens});
    measure(state, run, {0, bytes}, [&] { ops::rms_norm_forward(run, 1e-5, x, weight, y, rstd); });
  });
  add("layer_norm/forward", [=](benchmark::State& state, Run& run) {
    auto x = random_tensor<float>({kTokens, width}, 1);
    auto weight = random_tensor<float>({width}, 2);
    auto bias = random_tensor<float>({width}, 3);
    OwnedTensor<float> y({kTokens, width});
    OwnedTensor<float> mean({kTokens});
    OwnedTensor<float> rstd({kTokens});
    measure(state, run, {0, bytes},
            [&] { ops::layer_norm_forward(run, 1e-5, x, weight, bias, y, mean, rstd); });
  });
}

void add_adamw(std::int64_t size) {
  add("adamw", [=](benchmark::State& state, Run& run) {
    auto param = random_tensor<float>({size}, 1);
    auto grad = random_tensor<float>({size}, 2);
    OwnedTensor<float> m({size});
    OwnedTensor<float> v({size}, 1.0F);
    ops::AdamWStep step;
    step.lr = 1e-4;
    // Reads four tensors and writes three.
    measure(state, run, {0, 28.0 * static_cast<double>(size)},
            [&] { ops::adamw(run, step, param.view(), grad, m, v); });
  });
}

// AdamW on bf16 parameters, with f32 masters or rounded stochastically.
void add_adamw_bf16(const std::string& name, std::int64_t size, bool with_masters) {
  add(name, [=](benchmark::State& state, Run& run) {
    OwnedTensor<Bf16> values({size}, to_bf16(1.0F));
    OwnedTensor<float> master({with_masters ? size : 0}, 1.0F);
    auto grad = random_tensor<float>({size}, 2);
    OwnedTensor<float> m({size});
    OwnedTensor<float> v({size}, 1.0F);
    ops::UpdateTarget target(values);
    if (with_masters) target.master = master;
    ops::AdamWStep step;
    step.lr = 1e-4;
    // Gradient and moments read, moments written; masters read and written and values written, or
    // values read and written.
    const double bytes = (with_masters ? 20.0 + 10.0 : 20.0 + 4.0) * static_cast<double>(size);
    measure(state, run, {0, bytes}, [&] { ops::adamw(run, step, target, grad, m, v); });
  });
}

void add_lion(std::int64_t size) {
  add("lion", [=](benchmark::State& state, Run& run) {
    auto param = random_tensor<float>({size}, 1);
    auto grad = random_tensor<float>({size}, 2);
    OwnedTensor<float> m({size});
    measure(state, run, {0, 20.0 * static_cast<double>(size)},
            [&] { ops::lion(run, {.lr = 1e-4}, param.view(), grad, m); });
  });
}

void add_sgd(std::int64_t size) {
  add("sgd", [=](benchmark::State& state, Run& run) {
    auto param = random_tensor<float>({size}, 1);
    auto grad = random_tensor<float>({size}, 2);
    OwnedTensor<float> m({size});
    const ops::SgdStep step = {.lr = 1e-4, .momentum = 0.9, .nesterov = true};
    measure(state, run, {0, 20.0 * static_cast<double>(size)},
            [&] { ops::sgd(run, step, param.view(), grad, m); });
  });
}

/// The five steps on one matrix, as floating-point operations of their products.
void add_orthogonalize(std::int64_t rows, std::int64_t cols) {
  add("muon/orthogonalize", [=](benchmark::State& state, Run& run) {
    const auto start = random_tensor<float>({rows, cols}, 1);
    auto x = start;
    OwnedTensor<float> y({rows, cols});
    const double side = static_cast<double>(std::min(rows, cols));
    const double elements = static_cast<double>(rows * cols);
    const double flops = 5 * 2 * side * (2 * elements + side * side);
    measure(state, run, {flops, 0}, [&] {
      x.values = start.values;
      ops::orthogonalize(run, x, y);
    });
  });
}

void add_all() {
  add_linear("demo/attention_out", 256, 256);
  add_linear("demo/mlp_up", 256, 688);
  add_linear("demo/mlp_down", 688, 256);
  add_cross_entropy("demo/head", kTokens, 256, 2048);
  add_attention("demo/attention", 8, 256, {8, 4, 32});
  add_generation("demo/generate/rows:1", 1, 256, 2048);
  add_linear("gpt2/qkv", 768, 2304);
  add_linear("gpt2/attention_out", 768, 768);
  add_linear("gpt2/mlp_up", 768, 3072);
  add_linear("gpt2/mlp_down", 3072, 768);
  add_cross_entropy("gpt2/head", kTokens, 768, 50257);
  add_attention("gpt2/attention", 2, 1024, {12, 12, 64});
  add_generation("gpt2/generate/rows:1", 1, 768, 50257);
  add_generation("gpt2/generate/rows:8", 8, 768, 50257);
  // Beside the f32 lines of the same shapes; a generation reads half the bytes.
  add_linear<Bf16>("bf16/gpt2/mlp_up", 768, 3072);
  add_linear<Bf16>("bf16/gpt2/mlp_down", 3072, 768);
  add_cross_entropy<Bf16>("bf16/gpt2/head", kTokens, 768, 50257);
  add_generation<Bf16>("bf16/gpt2/generate/rows:1", 1, 768, 50257);
  add_generation<Bf16>("bf16/gpt2/generate/rows:8", 8, 768, 50257);
  add_norms(768);
  add_adamw(std::int64_t{25'000'000});
  add_adamw_bf16("adamw/bf16_masters", std::int64_t{25'000'000}, true);
  add_adamw_bf16("adamw/bf16_stochastic", std::int64_t{25'000'000}, false);
  add_lion(std::int64_t{25'000'000});
  add_sgd(std::int64_t{25'000'000});
  add_orthogonalize(768, 3072);
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  atl::add_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
