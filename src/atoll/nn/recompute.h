#pragma once

#include <memory>
#include <vector>

#include "atoll/nn/layer.h"

namespace atl::nn {

/// Keeps nothing of a layer but its x, and runs its forward pass again before B (Chen et al. 2016,
/// "Training deep nets with sublinear memory cost"). Bitwise equal to the bare layer: random draws
/// are counter-based, so they repeat.
///
/// What the layer would have kept from forward to W is owed from B to W instead.
class Recompute final : public Layer {
 public:
  explicit Recompute(std::unique_ptr<Layer> inner) : inner_(std::move(inner)) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override { inner_->visit(visitor); }

 private:
  struct Cached {
    Spec x;
    Footprint inner;
    std::size_t kept_bytes = 0;
  };
  const Cached& inner_plan(Spec x) const;
  Pass inner_pass(const Cached& plan, const Pass& pass) const;

  std::unique_ptr<Layer> inner_;
  // As in Sequential: remembered values of a pure function, and room for the forward pass's views.
  mutable std::vector<std::unique_ptr<Cached>> plans_;
  std::vector<Tensor> forward_kept_;
};

}  // namespace atl::nn
