#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/ops/run.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

/// The squared Euclidean norm of a flat gradient, as one sum of squares for each fixed block of
/// elements (NormBlock), in the order of the flat vector. So the norm has the same bits however
/// ranks share the gradient.
class GradNorm {
 public:
  /// For a rank that has the whole gradient: `ranges` cover all of it.
  explicit GradNorm(std::span<const optim::ParamRange> ranges) : blocks_(norm_blocks(ranges)) {}
  /// For ranks that each have a part of `layout`: this rank is number `rank` and has `ranges`.
  GradNorm(const FlatLayout& layout, std::span<const optim::ParamRange> ranges, int rank);

  /// The sum of squares of each block of the whole gradient, in the order of the flat vector.
  /// `grads`: this rank's gradients, flat. `group`: the ranks that share the layout, which must all
  /// call this function; it may be null where this rank has the whole gradient. Returns when the
  /// ranks have exchanged their sums.
  std::vector<double> squares(Run& run, const Tensor& grads, comm::Group* group) const;

 private:
  std::vector<NormBlock> blocks_;  // the blocks of this rank's ranges
  int rank_ = 0;
  // Both are empty where this rank has the whole gradient. Gathered blocks are in rank order.
  std::vector<std::int64_t> parts_;  // rank r has the gathered blocks [parts_[r], parts_[r + 1])
  std::vector<std::int64_t> order_;  // block i of the flat vector is gathered block order_[i]
};

}  // namespace atl::parallel
