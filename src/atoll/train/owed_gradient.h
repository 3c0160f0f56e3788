#pragma once

#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/parallel/param_store.h"

namespace atl::train {

/// The name of its elements in a checkpoint.
constexpr const char* kOwedGradient = "owed_gradient";

/// The rest of gradients that ranks had not sent yet when a run with another dp.compress wrote the
/// checkpoint. The rest is added to the sum of the next step's gradients, before the norm: so
/// clipping and every optimizer treat it as a gradient. It lies in the host's memory until that
/// step is taken.
class OwedGradient {
 public:
  bool is_empty() const { return values_.empty(); }
  /// Takes memory for what this rank updates of `store`, and fills it with zeros.
  void allocate(const parallel::ParamStore& store);
  /// To be filled when a checkpoint is read, and written with it; none where it is empty.
  std::vector<optim::StateTensor> state() const;
  /// Adds `share` of it to the gradients of that store.
  void add_to(const parallel::ParamStore& store, float share) const;
  /// After the step was taken.
  void drop() { values_ = {}; }

 private:
  // The elements of each range of the store, one range after the other.
  std::vector<optim::ParamRange> ranges_;
  mutable std::vector<float> values_;
};

}  // namespace atl::train
