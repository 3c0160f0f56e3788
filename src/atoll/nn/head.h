#pragma once

#include "atoll/nn/layer.h"

namespace atl::nn {

/// The last layer of a language model: logits and cross-entropy fused, so that the (B, T, V) logits
/// never exist.  x: (B, T, C)  y: (B, T), each position's loss in nats (0 where the target is
/// ignored).
///
/// What flows back into a loss is known beforehand (Run::loss_scale), so in training the forward
/// pass makes both gradients while a chunk's logits are in cache: dx is kept, and dW is added to
/// the gradient at once, unless the weight is frozen. B hands dx on; W has nothing left to do.
class LinearCrossEntropy final : public Layer {
 public:
  /// A head with a weight of its own, (V, C).
  explicit LinearCrossEntropy(Param weight, DeviceKind device = DeviceKind::kCpu)
      : device_(device), own_(std::move(weight)), weight_(&own_) {
    own_.is_embedding = true;
  }
  /// A head that shares the embedding's table, which must outlive it.
  explicit LinearCrossEntropy(Param* tied, DeviceKind device = DeviceKind::kCpu)
      : device_(device), weight_(tied) {}
  LinearCrossEntropy(const LinearCrossEntropy&) = delete;
  LinearCrossEntropy& operator=(const LinearCrossEntropy&) = delete;

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override { visitor.param(*weight_); }

  /// out = x W^T.  x: (R, C)  out: (R, V). For generation; needs logits_scratch_bytes of scratch.
  void logits(Run& run, Tensor x, Tensor out) const;
  std::size_t logits_scratch_bytes(const Spec& x) const;
  /// (V, C); shared with the embedding or its own.
  const Param* weight() const { return weight_; }
  std::int64_t vocab_size() const { return weight_->spec.shape.dim(0); }

 private:
  DeviceKind device_;  // whose memory is planned
  Param own_;
  Param* weight_;
};

}  // namespace atl::nn
