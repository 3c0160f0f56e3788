#pragma once

#include <cstdint>
#include <vector>

#include "atoll/tensor/arena.h"

namespace atl::nn {

/// What the router of one block has done in training since it was last cleared: sums over tokens,
/// which may be added to those of other ranks.
struct ExpertLoad {
  ExpertLoad(std::int64_t block_number, std::int64_t num_experts)
      : block(block_number), sums(static_cast<std::size_t>(num_experts + kNumLosses)) {}

  /// Behind the tokens that chose each expert stand these sums.
  enum Sum { kTokens, kDropped, kBalanceLoss, kZLoss, kNumLosses };

  /// The sums as ops add to them, f64, where they run on `device`: the host's, or memory of a GPU,
  /// which the first call takes; it must outlive this.
  Tensor on(Device& device);
  /// What `sums` lack of those goes there. Waits for all work of a GPU.
  void collect();
  /// Waits for it too.
  void clear();

  std::int64_t num_experts() const { return std::int64_t(sums.size()) - kNumLosses; }
  /// How often tokens chose expert `e`, whether there was room for them or not; once collected, as
  /// all that reads `sums`.
  double chose(std::int64_t e) const { return sums[static_cast<std::size_t>(e)]; }
  double sum(Sum which) const {
    return sums[static_cast<std::size_t>(num_experts() + static_cast<std::int64_t>(which))];
  }
  /// The sums in host memory.
  Tensor on_host() { return {sums.data(), spec()}; }

  std::int64_t block = 0;
  std::vector<double> sums;

 private:
  Spec spec() const { return {Dtype::kF64, {static_cast<std::int64_t>(sums.size())}}; }

  Buffer on_gpu_;  // what is not yet in `sums`; empty on a CPU
};

}  // namespace atl::nn
