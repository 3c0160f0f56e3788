#include "atoll/ops/peak.h"

#include <algorithm>
#include <ctime>
#include <numeric>
#include <vector>

#include "atoll/ops/cpu/amx_tiles.h"
#include "atoll/simd/amx.h"
#include "atoll/simd/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "atoll/ops/cpu/peak.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atl::ops::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Ten chains: latency (4 cycles) times throughput (2 a cycle) needs eight, and AVX2 has sixteen
// registers for the chains and their two operands.
double fma_loop(std::int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999F);
  const auto y = hn::Set(d, 0.001F);
  auto a0 = hn::Set(d, 0.1F), a1 = hn::Set(d, 0.2F), a2 = hn::Set(d, 0.3F), a3 = hn::Set(d, 0.4F);
  auto a4 = hn::Set(d, 0.5F), a5 = hn::Set(d, 0.6F), a6 = hn::Set(d, 0.7F), a7 = hn::Set(d, 0.8F);
  auto a8 = hn::Set(d, 0.9F), a9 = hn::Set(d, 1.0F);
  for (std::int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, x, y);
    a1 = hn::MulAdd(a1, x, y);
    a2 = hn::MulAdd(a2, x, y);
    a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y);
    a5 = hn::MulAdd(a5, x, y);
    a6 = hn::MulAdd(a6, x, y);
    a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y);
    a9 = hn::MulAdd(a9, x, y);
  }
  const auto low = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto high = hn::Add(hn::Add(a6, a7), hn::Add(a8, a9));
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));  // or the loop is optimised away
  return static_cast<double>(rounds) * 10 * 2 * static_cast<double>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace atl::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace atl::ops {

namespace cpu {
HWY_EXPORT(fma_loop);

// Here and not where it is called: with a single instruction set Highway takes no qualified name.
double best_fma_loop(std::int64_t rounds, float* sink) {
  return HWY_DYNAMIC_DISPATCH(fma_loop)(rounds, sink);
}
}  // namespace cpu

namespace {

// Of a CPU, by the calling thread. By the clock on the wall one start of the program in ten
// measures half of what two CPUs do: new threads share one of them for longer than this takes.
double thread_seconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// FLOP/s of all threads at once, the best of several times; loop(thread) returns the FLOPs it did.
template <typename Loop>
double best_rate(Run& run, Loop&& loop) {
  const auto threads = static_cast<std::size_t>(run.threads().num_threads());
  constexpr int kRepeats = 15;  // the best of them: noise only ever slows a loop down
  std::vector<double> rates(threads);
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    run.threads().run(static_cast<std::int64_t>(threads), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      const double begin = thread_seconds();
      const double flops = loop(at);
      rates[at] = flops / (thread_seconds() - begin);
    });
    best = std::max(best, std::accumulate(rates.begin(), rates.end(), 0.0));
  }
  return best;
}

}  // namespace

double measure_peak_flops(Run& run) {
  constexpr std::int64_t kRounds = 200'000;
  std::vector<float> sinks(static_cast<std::size_t>(run.threads().num_threads()));
  return best_rate(run, [&](std::size_t at) { return cpu::best_fma_loop(kRounds, &sinks[at]); });
}

double measure_amx_peak_flops(Run& run) {
  if (!simd::has_amx()) return 0;
  constexpr std::int64_t kRounds = 30'000;
  return best_rate(run, [](std::size_t) { return cpu::amx_tile_loop(kRounds); });
}

}  // namespace atl::ops

#endif  // HWY_ONCE
