#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/parallel/store/whole_state.h"

namespace atl::parallel {

/// Whole parameters, or their parts of optimizer state, put together from what the ranks that
/// have parts of them hold.
class Assembled {
 public:
  /// `parts` are the same tensors on all ranks of `group`, each this rank's part; `taker` says
  /// which rank takes which of them. What is no part of anything stays where it is, on its taker
  /// alone. Every rank must make it; moves one tensor at a time.
  Assembled(std::span<const WholeTensor> parts, comm::Group& group,
            const std::function<int(const WholeTensor& part)>& taker);

  /// Those that this rank takes, in the order of the parts; `param` is the whole one.
  std::span<const WholeTensor> tensors() const { return tensors_; }

 private:
  void collect(const WholeTensor& part, comm::Group& group, int taker);

  std::vector<WholeTensor> tensors_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace atl::parallel
