#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/nn/expert_load.h"

namespace atl::train {

/// How evenly routers have shared tokens out, since the report before.
struct ExpertReport {
  /// Choices of the busiest expert over the mean of its block, in the block where that is most.
  double most_over_mean = 0;
  std::int64_t block = 0;       ///< that block
  double least_over_mean = 0;   ///< of the idlest expert of any block
  double dropped_fraction = 0;  ///< of all choices: their expert had no room
  double balance_loss = 0;      ///< per token and block; top_k when all is even
  double z_loss = 0;            ///< per token and block
};

/// Adds up over the ranks of `group` what the routers of `loads` have done, and clears it. Every
/// rank must call it; a rank alone has a null group. `loads` has a block at least.
ExpertReport take_expert_report(const std::vector<std::unique_ptr<nn::ExpertLoad>>& loads,
                                comm::Group* group);

}  // namespace atl::train
