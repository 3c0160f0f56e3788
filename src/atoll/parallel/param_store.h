#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/nn/model.h"
#include "atoll/optim/adamw.h"
#include "atoll/tensor/arena.h"

namespace atl::parallel {

/// Gives a model's parameters their memory: one flat vector of values and, in training, one of
/// gradients, each parameter starting on a cache line. This is the store of a single rank.
class ParamStore {
 public:
  /// `training`: are there gradients? The model must outlive the store.
  ParamStore(nn::Model& model, bool training);

  void request(MemoryPlan& plan);
  /// Points every Param into the arena and fills the constants.
  void bind(const Arena& arena);
  /// Sets every parameter to its initial value: a pure function of (seed, parameter, element).
  void initialise(Run& run, std::uint64_t seed);

  /// Every parameter once, in the order of the flat vector.
  std::span<nn::Param* const> params() const { return params_; }
  /// Where params()[i] begins in the flat vector.
  std::int64_t offset(std::size_t i) const { return offsets_[i]; }
  /// The flat vector's spec; padding between parameters is zero and stays so.
  Spec flat() const { return flat_; }
  Tensor values() const { return values_; }
  Tensor grads() const { return grads_; }
  /// The flat vector in runs of equal treatment by the optimizer.
  std::span<const optim::ParamRange> ranges() const { return ranges_; }

 private:
  nn::Model& model_;
  bool training_;
  std::vector<nn::Param*> params_;
  std::vector<nn::Constant*> constants_;
  std::vector<std::int64_t> offsets_;
  std::vector<optim::ParamRange> ranges_;
  Spec flat_;
  int values_request_ = -1;
  int grads_request_ = -1;
  std::vector<int> constant_requests_;
  Tensor values_;
  Tensor grads_;
};

}  // namespace atl::parallel
