// Attention forward and backward in GFLOP/s, and generation in bytes of cache per second.
//
// FLOPs are those of the visible scores alone, T (T + 1) / 2 of them per head without a mask: two
// products of 2 D each forward, five backward. `peak` is the ceiling to compare with. One thread is
// timed by its CPU time, which neighbours on a shared machine disturb less; two threads by the
// clock.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/peak.h"
#include "atoll/ops/testing.h"

namespace atl {
namespace {

struct Operands {
  Operands(ops::HeadLayout layout, std::int64_t B, std::int64_t T)
      : heads(layout),
        qkv(test::random_tensor<float>({B, T, layout.qkv_width()}, 1)),
        dout(test::random_tensor<float>({B, T, layout.query_width()}, 2)),
        out({B, T, layout.query_width()}),
        lse({B, layout.num_heads, T}),
        dqkv({B, T, layout.qkv_width()}) {}

  ops::AttentionMask mask() {
    return {window, positions.size() == 0 ? Tensor() : positions.view()};
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(heads.head_dim)); }
  void forward(Run& run) { ops::attention_forward(run, heads, scale(), mask(), qkv, out, lse); }
  void backward(Run& run) {
    ops::attention_backward(run, heads, scale(), mask(), qkv, out, lse, dout, dqkv);
  }

  ops::HeadLayout heads;
  std::int64_t window = 0;
  test::OwnedTensor<std::int32_t> positions;
  test::OwnedTensor<float> qkv, dout, out, lse, dqkv;
};

constexpr std::int64_t kBatch = 2;
constexpr ops::HeadLayout heads_of(std::int64_t head_dim) {
  return {8, 4, head_dim};
}

std::int64_t causal_scores(std::int64_t T) {
  return T * (T + 1) / 2;
}

// scores: per query head of a sequence.
void set_gflops(benchmark::State& state, std::int64_t scores, std::int64_t head_dim,
                int num_products) {
  const double products = static_cast<double>(scores * kBatch * 8) * num_products;
  const double flops = products * 2.0 * static_cast<double>(head_dim);
  state.counters["FLOPS"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

// Arguments: T, head_dim, threads.
void forward(benchmark::State& state) {
  test::TestRun run(static_cast<int>(state.range(2)));
  Operands operands(heads_of(state.range(1)), kBatch, state.range(0));
  for (auto _ : state) operands.forward(run);
  set_gflops(state, causal_scores(state.range(0)), state.range(1), 2);
}

void backward(benchmark::State& state) {
  test::TestRun run(static_cast<int>(state.range(2)));
  Operands operands(heads_of(state.range(1)), kBatch, state.range(0));
  operands.forward(run);
  for (auto _ : state) operands.backward(run);
  set_gflops(state, causal_scores(state.range(0)), state.range(1), 5);
}

// Forward and backward where each query sees few of the keys. Arguments: T, keys that a window or a
// document holds, whether they are documents. FLOPs are those of the scores that the mask leaves.
void masked(benchmark::State& state) {
  constexpr std::int64_t kHeadDim = 64;
  const std::int64_t T = state.range(0);
  const std::int64_t size = state.range(1);
  const bool documents = state.range(2) != 0;
  test::TestRun run(1);
  Operands operands(heads_of(kHeadDim), kBatch, T);
  if (documents) {
    operands.positions = test::OwnedTensor<std::int32_t>({kBatch, T});
    for (std::int64_t i = 0; i < kBatch * T; ++i) {
      operands.positions[i] = static_cast<std::int32_t>(i % T % size);
    }
  } else {
    operands.window = size;
  }
  for (auto _ : state) {
    operands.forward(run);
    operands.backward(run);
  }
  const std::int64_t triangle = size * (size + 1) / 2;
  const std::int64_t scores = documents ? T / size * triangle : triangle + (T - size) * size;
  set_gflops(state, scores, kHeadDim, 7);
}

// Arguments: keys in the cache, query heads per key-value head, threads.
void cached(benchmark::State& state) {
  const ops::HeadLayout heads = {8 * state.range(1), 8, 64};
  const std::int64_t P = state.range(0);
  test::TestRun run(static_cast<int>(state.range(2)));
  Operands operands(heads, 1, 1);
  test::OwnedTensor<float> keys = test::random_tensor<float>({1, P, heads.kv_width()}, 3);
  test::OwnedTensor<float> values = test::random_tensor<float>({1, P, heads.kv_width()}, 4);
  for (auto _ : state) {
    ops::attention_cached(run, heads, operands.scale(), {}, P - 1, operands.qkv, keys, values,
                          operands.out);
  }
  state.SetBytesProcessed(state.iterations() * 2 * P * heads.kv_width() * 4);
}

// One layer of the models that bench/peers compares, qkv rows as far apart as there.
struct Model {
  ops::HeadLayout heads;
  std::int64_t B;
  std::int64_t T;
};
constexpr Model kModels[] = {
    {{12, 12, 64}, 1, 1024},  // GPT-2 124M
    {{12, 12, 64}, 4, 256},
    {{6, 6, 64}, 2, 512},  // Llama 30M
    {{8, 4, 32}, 2, 256},  // the demo
};

// Arguments: index into kModels, threads.
void model(benchmark::State& state, bool backward) {
  const Model& model = kModels[state.range(0)];
  test::TestRun run(static_cast<int>(state.range(1)));
  Operands operands(model.heads, model.B, model.T);
  operands.forward(run);
  for (auto _ : state) backward ? operands.backward(run) : operands.forward(run);
  const auto scores = static_cast<double>(causal_scores(model.T) * model.B * model.heads.num_heads);
  const double flops = scores * 2 * static_cast<double>(model.heads.head_dim) * (backward ? 5 : 2);
  state.counters["FLOPS"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}
void model_forward(benchmark::State& state) {
  model(state, false);
}
void model_backward(benchmark::State& state) {
  model(state, true);
}

// The best of twenty looks at the multiply-adds that registers alone allow. Argument: threads.
void peak(benchmark::State& state) {
  test::TestRun run(static_cast<int>(state.range(0)));
  double best = 0;
  for (auto _ : state) {
    for (int i = 0; i < 20; ++i) best = std::max(best, ops::measure_peak_flops(run));
  }
  state.counters["FLOPS"] = best;
}

BENCHMARK(peak)->Arg(1)->Arg(2)->Iterations(1);
BENCHMARK(forward)->ArgsProduct({{256, 512, 1024}, {32, 64, 128}, {1}});
BENCHMARK(forward)->ArgsProduct({{256, 512, 1024}, {32, 64, 128}, {2}})->UseRealTime();
BENCHMARK(backward)->ArgsProduct({{256, 512, 1024}, {32, 64, 128}, {1}});
BENCHMARK(backward)->ArgsProduct({{256, 512, 1024}, {32, 64, 128}, {2}})->UseRealTime();
BENCHMARK(model_forward)->ArgsProduct({{0, 1, 2, 3}, {2}})->UseRealTime();
BENCHMARK(model_backward)->ArgsProduct({{0, 1, 2, 3}, {2}})->UseRealTime();
BENCHMARK(masked)->ArgsProduct({{1024, 2048, 4096}, {128, 1024}, {0, 1}});
BENCHMARK(cached)->ArgsProduct({{256, 4096, 32768}, {1, 4}, {1}});
BENCHMARK(cached)->ArgsProduct({{256, 4096, 32768}, {1, 4}, {2}})->UseRealTime();

}  // namespace
}  // namespace atl

BENCHMARK_MAIN();
