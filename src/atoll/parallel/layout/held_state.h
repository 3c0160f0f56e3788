#pragma once

// What ranks hold of a training state, and how it comes into the hands of other ranks: after some
// were lost, or others have joined, without a checkpoint.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "atoll/comm/group.h"
#include "atoll/optim/optimizer.h"
#include "atoll/parallel/layout/element_range.h"
#include "atoll/parallel/layout/flat_layout.h"

namespace atl::parallel {

/// A vector of the training state over the flat parameter vector ("values", "exp_avg", ...), as far
/// as a rank holds it: pieces in order, each a tensor of as many elements.
struct HeldPiece {
  std::int64_t begin = 0;
  Tensor tensor;
};
using HeldVectors = std::map<std::string, std::vector<HeldPiece>>;

/// Copies of such vectors, taken before the memory that they lay in is given back.
class HeldCopy {
 public:
  HeldCopy() = default;
  explicit HeldCopy(const HeldVectors& held);

  const HeldVectors& vectors() const { return vectors_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  HeldVectors vectors_;
};

/// The pieces of an optimizer's state by name, and of the values that its ranges are about.
HeldVectors held_vectors(const optim::Optimizer& optimizer,
                         std::span<const optim::ParamRange> ranges, const Tensor& values);

/// One source of the state that was: which vectors lie on which rank of the group.
struct HeldBy {
  int rank = 0;
  /// What of the flat vector it holds, in order.
  std::vector<ElementRange> ranges;
};

/// Fills `wanted` from what the ranks of the group hold: `sources` cover the flat vector, each
/// element once, and are the same on all ranks, as are the ranges that each rank wants, `wants`.
/// `held` is what this rank holds of its own sources. Vectors that a source lacks somewhere, as an
/// optimizer has no momentum for some parameters, are left alone there; every rank must know all
/// names. Every rank must call it.
void redistribute(comm::Group& group, std::span<const HeldBy> sources,
                  std::span<const std::vector<ElementRange>> wants, const HeldVectors& held,
                  const HeldVectors& wanted);

/// Copies what `held` and `wanted` have in common, within this rank.
void restore(const HeldVectors& held, const HeldVectors& wanted);

/// The parts of rank `r` of a layout as ranges of the flat vector.
std::vector<ElementRange> element_ranges(const FlatLayout& layout, int r);

}  // namespace atl::parallel
