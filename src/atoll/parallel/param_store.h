#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/optim/optimizer.h"
#include "atoll/tensor/arena.h"

namespace atl::parallel {

/// Gives a model's parameters their memory: one flat vector of those that are trained, one of those
/// that are frozen and, in training, one of gradients, each parameter starting on a cache line.
/// This is the store of a single rank.
class ParamStore {
 public:
  /// `training`: are there gradients? The model must outlive the store.
  ParamStore(nn::Model& model, bool training);

  void request(MemoryPlan& plan);
  /// Points every Param into the arena and fills the constants.
  void bind(const Arena& arena);
  /// Sets every parameter to its initial value: a pure function of (seed, parameter, element), the
  /// parameter by its number in params().
  void initialise(Run& run, std::uint64_t seed);

  /// Every parameter once: those that are trained, in the order of their flat vector, then those
  /// that are frozen.
  std::span<nn::Param* const> params() const { return params_; }
  /// The parameters that are trained.
  std::span<nn::Param* const> trained() const { return params().first(num_trained_); }
  /// Those that are not.
  std::span<nn::Param* const> frozen() const { return params().subspan(num_trained_); }
  /// Where trained()[i] begins in the flat vector.
  std::int64_t offset(std::size_t i) const { return offsets_[i]; }
  /// The spec of the flat vector of what is trained; padding between parameters is zero and stays
  /// so.
  Spec flat() const { return flat_; }
  Tensor values() const { return values_; }
  /// Of flat().in_compute_dtype().
  Tensor grads() const { return grads_; }
  /// What the optimizer treats alike: see append_ranges.
  std::span<const optim::ParamRange> ranges() const { return ranges_; }

 private:
  bool training_;
  std::vector<nn::Param*> params_;
  std::size_t num_trained_ = 0;
  std::vector<nn::Constant*> constants_;
  std::vector<std::int64_t> offsets_;
  std::vector<optim::ParamRange> ranges_;
  Spec flat_;
  Spec frozen_flat_;
  int values_request_ = -1;
  int frozen_request_ = -1;
  int grads_request_ = -1;
  std::vector<int> constant_requests_;
  Tensor values_;
  Tensor grads_;
};

}  // namespace atl::parallel
