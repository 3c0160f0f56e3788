#pragma once

#include <memory>
#include <vector>

#include "atoll/ops/update/update_target.h"
#include "atoll/optim/state_vector.h"

namespace atl::optim {

/// What all optimizers share: masters, and state vectors over the ranges they train.
class FlatOptimizer : public Optimizer {
 public:
  /// Trains `ranges`, and nothing else, of a flat vector of this spec.
  FlatOptimizer(const OptimizerOptions& options, Spec flat, std::span<const ParamRange> ranges);

  void request(MemoryPlan& plan) override;
  void bind(const Arena& arena) override;
  void init_masters(Run& run, Tensor values) override;
  std::vector<StateTensor> state() const override;

 protected:
  const std::vector<ParamRange>& ranges() const { return ranges_; }
  Spec flat() const { return flat_; }

  /// Adds a state vector over all ranges, in the compute dtype; the number to give state_of.
  std::size_t add_state(std::string name);
  /// The part of a state vector, of the values or of the gradients that belongs to `range`.
  Tensor state_of(std::size_t number, const ParamRange& range) const;
  static Tensor values_of(const Tensor& values, const ParamRange& range);
  static Tensor grads_of(const Tensor& grads, const ParamRange& range);
  /// The part of the flat `values` that belongs to `range`, as ops take it.
  ops::UpdateTarget target_of(const Run& run, const StepArgs& args, const Tensor& values,
                              const ParamRange& range) const;
  /// Throws Error(kInternal) unless values and grads are those of the flat vector.
  void check(const StepArgs& args, const Tensor& values, const Tensor& grads) const;

 private:
  Spec flat_;
  std::vector<ParamRange> ranges_;
  std::vector<StateVector> states_;
  int master_ = -1;  // its number among the states; -1: there are no masters
};

}  // namespace atl::optim
