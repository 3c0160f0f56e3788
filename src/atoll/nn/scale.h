#pragma once

#include "atoll/nn/layer.h"

namespace atl::nn {

/// y = factor x, of any shape: the multipliers that some families put behind the embedding, behind
/// their branches and before the head.
class Scale final : public Layer {
 public:
  explicit Scale(double factor) : factor_(factor) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& /*run*/, const Pass& /*pass*/) override {}
  void visit(ParamVisitor& /*visitor*/) override {}

 private:
  double factor_;
};

}  // namespace atl::nn
