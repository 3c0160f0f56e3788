#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "atoll/ops/peak.h"

namespace atl::ops {

namespace {

constexpr std::size_t kBytes = std::size_t{128} << 20;  // of a buffer: above any cache
constexpr int kRepeats = 10;  // the best of them: noise only ever slows a loop down

// Bytes a second of `work(thread, begin, end)` on byte ranges that share kBytes out.
double best_rate(
    Run& run, double bytes,
    const std::function<void(std::size_t thread, std::size_t begin, std::size_t end)>& work) {
  const auto threads = static_cast<std::size_t>(run.threads().num_threads());
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    run.threads().run(static_cast<std::int64_t>(threads), [&](std::int64_t i) {
      const auto thread = static_cast<std::size_t>(i);
      const std::size_t part = kBytes / threads / 64 * 64;
      work(thread, thread * part, thread + 1 == threads ? kBytes : (thread + 1) * part);
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, bytes / took.count());
  }
  return best;
}

}  // namespace

double measure_copy_bandwidth(Run& run) {
  const std::vector<std::byte> from(kBytes, std::byte{1});
  std::vector<std::byte> to(kBytes);
  return best_rate(run, 2 * static_cast<double>(kBytes),
                   [&](std::size_t, std::size_t begin, std::size_t end) {
                     std::memcpy(to.data() + begin, from.data() + begin, end - begin);
                   });
}

double measure_read_bandwidth(Run& run) {
  const std::vector<std::uint64_t> from(kBytes / sizeof(std::uint64_t), 1);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(run.threads().num_threads()));
  return best_rate(run, static_cast<double>(kBytes),
                   [&](std::size_t thread, std::size_t begin, std::size_t end) {
                     constexpr std::size_t kWords = 16;
                     std::array<std::uint64_t, kWords> sum = {};
                     for (std::size_t i = begin / 8; i + kWords <= end / 8; i += kWords) {
                       for (std::size_t j = 0; j < kWords; ++j) sum[j] += from[i + j];
                     }
                     for (const std::uint64_t one : sum) sums[thread] += one;
                   });
}

}  // namespace atl::ops
