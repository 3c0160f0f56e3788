#pragma once

#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/parallel/store/param_store.h"

namespace atl::train {

/// The name of this vector in a checkpoint.
constexpr const char* kResidualGradient = "owed_gradient";

/// The residual of the gradients: what ranks had not sent yet when a run with another dp.compress
/// wrote the checkpoint. It is added to the sum of the next step's gradients, before the norm is
/// measured: clipping and every optimizer treat the residual as a gradient. The residual is in host
/// memory until that step is taken.
class ResidualGradient {
 public:
  bool is_empty() const { return values_.empty(); }
  /// Allocates the residual of the elements of `store` that this rank updates, filled with zeros.
  void allocate(const parallel::ParamStore& store);
  /// The residual, for reading from a checkpoint and writing to one; empty where is_empty().
  std::vector<optim::StateTensor> state() const;
  /// Adds `share` times the residual to the gradients of `store`.
  void add_to(const parallel::ParamStore& store, float share) const;
  /// Frees the residual, after the step was taken.
  void drop() { values_ = {}; }

 private:
  // The elements of each range of the store, one range after the other.
  std::vector<optim::ParamRange> ranges_;
  mutable std::vector<float> values_;
};

}  // namespace atl::train
