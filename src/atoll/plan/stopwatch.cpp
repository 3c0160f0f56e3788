#include "atoll/plan/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace atl::plan {

namespace {

constexpr int kRounds = 3;
constexpr double kRoundSeconds = 0.02;
constexpr std::int64_t kMostCalls = 10'000;

double seconds_of(std::int64_t calls, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double largest(comm::Group& all, double value) {
  if (all.size() > 1) all.all_reduce({&value, {Dtype::kF64, {1}}}, comm::Reduce::kMax);
  return value;
}

}  // namespace

double time_some(comm::Group& all, int active, const std::function<void()>& call) {
  const bool works = all.rank() < active;
  if (works) call();  // makes primitives, touches memory
  all.barrier();
  const double once = largest(all, works ? seconds_of(1, call) : 0);
  // The same number everywhere: a call may be a collective.
  const auto calls = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(std::ceil(kRoundSeconds / std::max(once, 1e-9))), 1, kMostCalls);
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    all.barrier();
    const double taken = largest(all, works ? seconds_of(calls, call) : 0);
    least = std::min(least, taken / static_cast<double>(calls));
  }
  return least;
}

double time_together(comm::Group& all, const std::function<void()>& call) {
  return time_some(all, all.size(), call);
}

}  // namespace atl::plan
