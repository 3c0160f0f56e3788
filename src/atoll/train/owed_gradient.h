#pragma once

#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/parallel/param_store.h"

namespace atl::train {

/// The name of its elements in a checkpoint.
constexpr const char* kOwedGradient = "owed_gradient";

/// What ranks owed each other of gradients when they compressed them in another way than this run.
/// It is added to the sum of the next step's gradients, before their norm is taken, as the other
/// way would have sent it: clipping, both moments of AdamW and every other optimizer treat it as
/// the gradient that it is. It lies in the host's memory until that step is taken.
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
