#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "atoll/ops/peak.h"

namespace atl::ops {

namespace {

constexpr std::size_t kBytes = std::size_t{128} << 20;  // of a buffer: above any cache
constexpr int kRepeats = 10;  // the best of them: noise only ever slows a loop down

}  // namespace

double measure_copy_bandwidth(Run& run) {
  const std::vector<std::byte> from(kBytes, std::byte{1});
  std::vector<std::byte> to(kBytes);
  const auto threads = static_cast<std::size_t>(run.threads().num_threads());
  const std::size_t part = kBytes / threads;
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    run.threads().run(static_cast<std::int64_t>(threads), [&](std::int64_t i) {
      const std::size_t at = static_cast<std::size_t>(i) * part;
      std::memcpy(to.data() + at, from.data() + at, part);
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2 * static_cast<double>(part * threads) / took.count());
  }
  return best;
}

}  // namespace atl::ops
