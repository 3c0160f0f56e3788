#pragma once

#include <functional>
#include <span>
#include <string>

#include "atoll/comm/group.h"
#include "atoll/nn/param.h"

namespace atl::parallel {

/// How gather_stages gets values and gives them away.
struct StageValues {
  /// The whole of this rank's parameter number i, of its spec. Called in ascending order, for those
  /// that no rank before this one has. Undefined on all ranks of a pipeline whose parts another
  /// pipeline gives away.
  std::function<Tensor(std::size_t i)> mine;
  /// On the first rank, for each parameter of the model in its order; the value is there until it
  /// returns. Null where `mine` is undefined.
  std::function<void(const nn::Param& whole, const Tensor& value)> take;
};

/// Brings whole parameters from the ranks of a pipeline to the first of them, one after the other.
/// `whole`: those of the whole model, without memory. `mine`: those that this rank has, by the
/// whole parameter's name and in that order. Every rank of the pipeline must call it.
void gather_stages(std::span<nn::Param* const> whole, std::span<nn::Param* const> mine,
                   comm::Group& pipeline, const StageValues& values);

}  // namespace atl::parallel
