#include "atoll/rl/advantages.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/base/check.h"

namespace atl::rl {

namespace {

constexpr double kLeastDeviation = 1e-4;  // TRL's

bool is_even(std::span<const double> rewards) {
  return std::ranges::all_of(rewards, [&](double reward) { return reward == rewards.front(); });
}

double deviation(std::span<const double> rewards, double mean) {
  double squares = 0;
  for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
  return std::sqrt(squares / static_cast<double>(rewards.size() - 1));
}

std::span<const double> group_of(std::span<const double> rewards, std::size_t index,
                                 std::int64_t group) {
  const auto size = static_cast<std::size_t>(group);
  return rewards.subspan(index * size, size);
}

}  // namespace

Advantage parse_advantage(std::string_view name) {
  if (name == "normalised") return Advantage::kNormalised;
  ATOLL_CHECK(name == "centred", "advantage {}", name);
  return Advantage::kCentred;
}

std::vector<double> advantages(std::span<const double> rewards, std::int64_t group, Advantage how) {
  ATOLL_CHECK(group >= 2 && std::ssize(rewards) % group == 0, "{} rewards in groups of {}",
              rewards.size(), group);
  std::vector<double> result(rewards.size(), 0.0);
  for (std::size_t i = 0; i * static_cast<std::size_t>(group) < rewards.size(); ++i) {
    const std::span<const double> own = group_of(rewards, i, group);
    if (is_even(own)) continue;  // where the mean's rounding would leave a trace
    const double mean = std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(group);
    const double scale =
        how == Advantage::kNormalised ? 1 / (deviation(own, mean) + kLeastDeviation) : 1;
    for (std::size_t j = 0; j < own.size(); ++j) {
      result[i * own.size() + j] = (own[j] - mean) * scale;
    }
  }
  return result;
}

std::int64_t groups_without_signal(std::span<const double> rewards, std::int64_t group) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i * static_cast<std::size_t>(group) < rewards.size(); ++i) {
    if (is_even(group_of(rewards, i, group))) ++count;
  }
  return count;
}

}  // namespace atl::rl
