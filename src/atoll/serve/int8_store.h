#pragma once

#include <vector>

#include "atoll/ops/int8.h"
#include "atoll/parallel/param_store.h"

namespace atl::serve {

/// The parameters of a model that generates with int8 weights: matrices that products read are
/// ops::Int8Matrix, the rest (norms, biases, positions) stays f32. No matrix is ever held whole in
/// f32 but the one that is being written.
class Int8Store final : public parallel::ParamStore {
 public:
  /// Sets as_int8 in the model's parameters, before anything is planned with them. The device must
  /// outlive the store.
  Int8Store(Device& device, nn::Model& model);

  void request(MemoryPlan& plan, const parallel::StageClock& clock) override;
  void bind(const Arena& arena) override;

  /// Calls `fill` with one parameter at a time and rounds what it gives. Throws Error(kNumeric)
  /// naming the parameter when a weight is not finite.
  void write_whole(const std::function<void(std::span<const parallel::WholeParam>)>& fill) override;
  /// Throws Error(kInternal): what was rounded cannot be had back.
  void read_whole(const std::function<void(std::span<const parallel::WholeParam>)>& read) override;

  /// The mean squared error of rounding over the mean square, over all matrices, in turn.
  double relative_error() const { return squares_ > 0 ? errors_ / squares_ : 0; }

 private:
  struct Requests {
    int value = -1;  // of a parameter that stays f32
    int int8 = -1;
    int scales = -1;
  };
  std::vector<Requests> requests_;  // one a parameter
  Stream stream_;
  double errors_ = 0;
  double squares_ = 0;
};

}  // namespace atl::serve
