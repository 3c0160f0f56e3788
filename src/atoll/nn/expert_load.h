#pragma once

#include <cstdint>
#include <vector>

#include "atoll/tensor/tensor.h"

namespace atl::nn {

/// What the router of one block has done in training since it was last cleared: sums over tokens,
/// which may be added to those of other ranks.
struct ExpertLoad {
  ExpertLoad(std::int64_t block_number, std::int64_t num_experts)
      : block(block_number), sums(static_cast<std::size_t>(num_experts + kNumLosses)) {}

  /// Behind the tokens that chose each expert stand these sums.
  enum Sum { kTokens, kDropped, kBalanceLoss, kZLoss, kNumLosses };

  std::int64_t num_experts() const { return std::int64_t(sums.size()) - kNumLosses; }
  /// How often tokens chose expert `e`, whether there was room for them or not.
  double chose(std::int64_t e) const { return sums[static_cast<std::size_t>(e)]; }
  double sum(Sum which) const {
    return sums[static_cast<std::size_t>(num_experts() + static_cast<std::int64_t>(which))];
  }
  void clear() { sums.assign(sums.size(), 0.0); }
  /// The sums as ops add to them, f64 in host memory.
  Tensor tensor() { return {sums.data(), {Dtype::kF64, {static_cast<std::int64_t>(sums.size())}}}; }

  std::int64_t block = 0;
  std::vector<double> sums;
};

}  // namespace atl::nn
