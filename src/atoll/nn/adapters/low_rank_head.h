#pragma once

#include <memory>

#include "atoll/nn/head.h"
#include "atoll/nn/layer.h"

namespace atl::nn {

/// A head with its loss, and a low-rank adapter beside its weight, whether that is the embedding's
/// table or not: logits = x W^T + s (x A^T) B^T. As LinearCrossEntropy it never has the logits of
/// all rows, and makes the gradients in the forward pass. The weight is frozen. On a CPU.
/// x: (B, T, C)  y: (B, T)  A: (r, C)  B: (V, r)
class LowRankHead final : public Layer {
 public:
  /// `inner` is a LinearCrossEntropy.
  LowRankHead(std::unique_ptr<Layer> inner, Param a, Param b, double scale);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override { inner_->backward_input(run, pass); }
  /// The inner layer's parameters come first.
  void visit(ParamVisitor& visitor) override;

 private:
  // Pieces of scratch for so many rows of x.
  struct Room;
  void pass_rows(Run& run, const Room& room, Tensor x, Tensor targets, Tensor loss, Tensor dx,
                 bool is_first);
  const Param& weight() const { return *head_->weight(); }

  std::unique_ptr<Layer> inner_;
  const LinearCrossEntropy* head_;  // inner_
  Param a_;
  Param b_;
  double scale_;
};

}  // namespace atl::nn
