#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/ops/run.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

/// The squared Euclidean norm of a flat gradient: squares are summed over fixed blocks (NormBlock),
/// and the blocks' sums in the order of the flat vector, so that its bits do not depend on who has
/// what.
class GradNorm {
 public:
  /// This rank has the whole gradient; `ranges` are all of it.
  explicit GradNorm(std::span<const optim::ParamRange> ranges) : blocks_(norm_blocks(ranges)) {}
  /// Each rank has its part of `layout`, and this one, `rank`, has `ranges`.
  GradNorm(const FlatLayout& layout, std::span<const optim::ParamRange> ranges, int rank);

  /// The sum of squares of each block, in the order of the flat vector. Every rank of the group
  /// that shares the layout must call it. `group` may be null where this rank has the whole
  /// gradient.
  std::vector<double> squares(Run& run, const Tensor& grads, comm::Group* group) const;

 private:
  std::vector<NormBlock> blocks_;  // of this rank's ranges
  int rank_ = 0;
  // Empty where this rank has the whole gradient.
  std::vector<std::int64_t> parts_;  // how many blocks each rank has, as parts
  std::vector<std::int64_t> order_;  // block i of the flat vector is this gathered one
};

}  // namespace atl::parallel
