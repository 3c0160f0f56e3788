#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/parallel/compress/sign_exchange.h"

namespace atl::parallel {

/// What stands in the optimizer's place where ranks send signs of momenta instead of gradients. A
/// step is of one of two kinds: gradients are summed over ranks before the update, as always; or
/// they are not, and the update exchanges signs.
class OneBitOptimizer : public optim::Optimizer {
 public:
  void connect(comm::Group& group) { exchange_.connect(group); }

  /// Begins the step after `steps_taken`; returns whether gradients are summed over ranks in it.
  virtual bool begin_step(std::int64_t steps_taken) = 0;
  /// The norm of the sum of gradients in a step that does not sum them: every rank gives its own,
  /// of the whole flat vector. Measured in a sketch.
  virtual double grad_norm(Run& run, const Tensor& grads) = 0;
  /// To be called on all ranks in place of update() when a step is not taken.
  virtual void skip(Run& /*run*/, Tensor /*values*/) {}
  /// Whether all ranks have the same values, so that a checkpoint can be made of them.
  virtual bool is_together() const { return true; }

  /// How many updates the second moment has; -1: as many as there were steps.
  std::int64_t second_updates() const { return second_updates_; }
  /// Over how many steps the residual is a mean momentum.
  std::int64_t residual_steps() const { return residual_steps_; }
  /// After the state was read from a checkpoint that says so.
  virtual void restored(std::int64_t second_updates, std::int64_t residual_steps) {
    second_updates_ = second_updates;
    residual_steps_ = residual_steps;
  }

 protected:
  OneBitOptimizer(const optim::OptimizerOptions& options, const FlatLayout& layout, int rank);

  SignUnits units() const { return sign_units(beta2_, eps_, second_updates_); }

  const FlatLayout& layout_;
  double beta1_, beta2_, eps_, weight_decay_;
  SignExchange exchange_;
  std::int64_t second_updates_ = -1;
  std::int64_t residual_steps_ = 1;
};

}  // namespace atl::parallel
