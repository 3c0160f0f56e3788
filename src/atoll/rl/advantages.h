#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace atl::rl {

/// How a reward becomes an advantage.
enum class Advantage {
  kNormalised,  ///< (reward - mean) / (standard deviation + 1e-4) of its group (GRPO, Shao et al.
                ///< 2024); the deviation is that of a sample, over group - 1
  kCentred,     ///< reward - mean (Dr. GRPO, Liu et al. 2025)
};
/// "normalised" or "centred", as rl.advantage has them.
Advantage parse_advantage(std::string_view name);

/// The advantages of completions whose groups of `group` lie one behind another. A group whose
/// rewards are all equal has none: its advantages are 0.
std::vector<double> advantages(std::span<const double> rewards, std::int64_t group, Advantage how);

/// Groups in which all rewards are equal: they teach nothing.
std::int64_t groups_without_signal(std::span<const double> rewards, std::int64_t group);

}  // namespace atl::rl
