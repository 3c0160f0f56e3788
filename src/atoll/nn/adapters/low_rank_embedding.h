#pragma once

#include <memory>

#include "atoll/nn/layer.h"

namespace atl::nn {

/// A token embedding, whatever layer that is, with a low-rank adapter beside its table:
/// y = f(x) + s A[x] B^T.  x: i32 (B, T)  y: (B, T, C)  A: (V, r)  B: (C, r)
class LowRankEmbedding final : public Layer {
 public:
  LowRankEmbedding(std::unique_ptr<Layer> inner, Param a, Param b, double scale);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override { inner_->backward_input(run, pass); }
  void backward_weight(Run& run, const Pass& pass) override;
  /// The inner layer's parameters come first.
  void visit(ParamVisitor& visitor) override;

 private:
  // s B, in scratch.
  Tensor scaled_b(Run& run) const;

  std::unique_ptr<Layer> inner_;
  Param a_;
  Param b_;
  double scale_;
};

}  // namespace atl::nn
