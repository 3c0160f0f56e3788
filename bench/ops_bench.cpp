// How fast the ops are, and what part of the machine that is. Each line has the rate of the median
// call and of the best one, and, for arithmetic, the best as a percentage of `peak`: the
// multiply-adds on registers alone, on as many threads, just before. Peak is a best of many too:
// noise only ever slows a call down, so best against best holds on a busy machine. `atoll bench
// ops` measures the same calls.
//
//   ops_bench --benchmark_min_time=0.3
//   ops_bench --benchmark_filter=gpt2

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "atoll/cli/bench/models.h"
#include "atoll/cli/bench/timing.h"
#include "atoll/ops/peak.h"
#include "atoll/plan/op_cases.h"

namespace atl {
namespace {

constexpr int kThreadCounts[] = {1, 2};

void measure(benchmark::State& state, const plan::OpCase& one, int threads) {
  const auto device = open_device({.threads = threads});
  const auto stream = device->open_stream();
  Run run = {.stream = stream.get()};
  const double peak = ops::measure_peak_flops(run);
  const auto call = one.prepare(run);
  call();  // makes primitives, touches memory
  std::vector<double> seconds;
  for (auto _ : state) seconds.push_back(cli::seconds_of(call));
  const double median = cli::median(seconds);
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const bool arithmetic = one.bound == plan::OpCase::Bound::kArithmetic;
  state.counters[arithmetic ? "GFLOP/s" : "GB/s"] = one.amount / median / 1e9;
  state.counters["best"] = one.amount / best / 1e9;
  if (!arithmetic) return;
  state.counters["peak"] = peak / 1e9;
  state.counters["%"] = 100 * one.amount / best / peak;
}

void add_all(const std::string& prefix, const char* model, const plan::OpSizes& sizes) {
  for (const plan::OpCase& one : plan::op_cases(cli::bench_model_config(model), sizes)) {
    for (const int threads : kThreadCounts) {
      benchmark::RegisterBenchmark(
          (prefix + one.name + fmt::format("/threads:{}", threads)).c_str(),
          [one, threads](benchmark::State& state) { measure(state, one, threads); })
          ->UseRealTime();
    }
  }
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  atl::add_all("demo/", "demo", {.sequences = 8, .context = 256});
  atl::add_all("gpt2/", "gpt2-124m", {.sequences = 2, .context = 1024});
  atl::add_all("bf16/gpt2/", "gpt2-124m",
               {.sequences = 2, .context = 1024, .dtype = atl::Dtype::kBf16});
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
