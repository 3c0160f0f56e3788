#pragma once

#include <span>
#include <string>
#include <vector>

#include "atoll/optim/optimizer.h"

namespace atl::optim {

/// `ranges` with neighbours joined where they touch: all, or unless `across_decay` those that an
/// update treats as one, with the same decay, learning rate and draws in a row. The result's ranges
/// are no matrices.
std::vector<ParamRange> joined(std::span<const ParamRange> ranges, bool across_decay);

/// One number of optimizer state for each element of some ranges, and memory for no other.
class StateVector {
 public:
  /// `name` as in StateTensor; f32 or f64.
  StateVector(std::string name, Dtype dtype, std::span<const ParamRange> ranges);

  void request(MemoryPlan& plan);
  void bind(const Arena& arena);
  /// The state of the flat vector's elements [range.begin, range.begin + range.count).
  Tensor of(const ParamRange& range) const;
  /// Appends the pieces.
  void append_to(std::vector<StateTensor>& state) const;

 private:
  std::string name_;
  Dtype dtype_;
  std::vector<ParamRange> pieces_;
  std::vector<std::int64_t> offsets_;  // of pieces_[i] in the memory
  std::int64_t size_ = 0;
  int request_ = -1;
  Tensor memory_;
};

}  // namespace atl::optim
