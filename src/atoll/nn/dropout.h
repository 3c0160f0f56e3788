#pragma once

#include "atoll/nn/layer.h"
#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

/// Inverted dropout with a counter-based mask; the identity outside training. x, y: (B, T, C).
class Dropout final : public Layer {
 public:
  /// `index` tells this layer's draws from those of the model's other dropouts. 0 <= p < 1. `part`:
  /// which of the batch's rows it is given.
  Dropout(double p, int index, ops::RowPart part = {}) : p_(p), index_(index), part_(part) {}

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;

 private:
  double p_;
  int index_;
  ops::RowPart part_;
};

}  // namespace atl::nn
