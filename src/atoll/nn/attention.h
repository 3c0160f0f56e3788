#pragma once

#include "atoll/nn/linear.h"
#include "atoll/ops/rope.h"

namespace atl::nn {

/// Causal self-attention with its two projections: qkv = x Wqkv^T, rotated by position when there
/// is a rope table, attention, y = out Wo^T.  x, y: (B, T, C).
class SelfAttention final : public Layer {
 public:
  struct Options {
    ops::HeadLayout heads;
    double scale = 0;                      ///< of the scores; 1 / sqrt(head_dim) in most models
    const Constant* rope_table = nullptr;  ///< (P, head_dim), see ops::rope; null: no rotation
    int index = 0;                         ///< which pair of KvCache tensors is this layer's
  };
  /// qkv: C -> heads.qkv_width(), out: heads.query_width() -> C.
  SelfAttention(Options options, Linear qkv, Linear out);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  void rotate(Run& run, std::int64_t first_position, bool inverse, Tensor qkv) const;

  Options options_;
  Linear qkv_;
  Linear out_;
};

}  // namespace atl::nn
