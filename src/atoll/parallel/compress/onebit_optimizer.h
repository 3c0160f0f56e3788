#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "atoll/optim/optimizer.h"
#include "atoll/parallel/compress/sign_exchange.h"

namespace atl::parallel {

/// The optimizer of a run whose ranks exchange signs of momenta instead of gradients. There are two
/// kinds of steps. In one kind ranks sum gradients before the update, as with other optimizers. In
/// the other kind they do not, and update() may exchange signs.
class OneBitOptimizer : public optim::Optimizer {
 public:
  /// `group`: the data-parallel ranks. To be called before the first step; must outlive this.
  void connect(comm::Group& group) { exchange_.connect(group); }

  /// Begins the step after `steps_taken` steps; returns whether ranks sum gradients in this step.
  virtual bool begin_step(std::int64_t steps_taken) = 0;
  /// For a step that does not sum gradients: estimates the norm of the sum of all ranks' gradients
  /// from a sketch. `grads`: this rank's own, the whole flat vector. Every rank must call it.
  virtual double grad_norm(Run& run, const Tensor& grads) = 0;
  /// To be called on all ranks in place of update() when a step is not taken.
  virtual void skip(Run& /*run*/, Tensor /*values*/) {}
  /// Whether all ranks have the same values, which a checkpoint needs.
  virtual bool is_together() const { return true; }

  /// The number of updates of the second moment so far; -1: one in each step.
  std::int64_t second_updates() const { return second_updates_; }
  /// The residual is the error of a momentum that is a mean over so many steps.
  std::int64_t residual_steps() const { return residual_steps_; }
  /// To be called after the state was read from a checkpoint, with the two numbers it holds.
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
