#pragma once

#include "atoll/nn/attention_core.h"
#include "atoll/nn/axis.h"
#include "atoll/ops/attention_block/attention_block.h"
#include "atoll/tensor/sequence_part.h"

namespace atl::nn {

/// Ranks that have parts of each sequence in zigzag order and pass keys and values round a ring
/// (Liu et al. 2023, "Ring Attention with Blockwise Transformers"; the order: Brandon et al. 2023,
/// "Striped Attention", and zhuzilin's ring-flash-attention): each rank attends its own queries to
/// the keys and values of one rank after another, which arrive while it works on those before, and
/// merges the results by their log-sum-exp. Backward passes them round once more, and the gradient
/// of each rank's keys and values grows as it follows them home. No rank has all keys at any time.
///
/// With P ranks and B sequences of T tokens, a rank sends 2 B (T / P) kv_width (P - 1) elements
/// forward, and backward the same of keys and values and as many, in the compute dtype, of their
/// gradients. 2 P must divide T; the heads need not be divided.
class RingAttention final : public AttentionCore {
 public:
  /// `axis` must outlive this.
  explicit RingAttention(Axis* axis) : axis_(axis) {}

  Footprint plan(const Setup& setup, const Spec& qkv) const override;
  void forward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
               const Tensor& out, std::span<const Tensor> kept) override;
  void backward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                const Tensor& out, std::span<const Tensor> kept, const Tensor& dout,
                const Tensor& dqkv) override;

  /// The blocks of rank `rank`'s queries with keys of rank `owner` that some of them see, of
  /// sequences of `length` tokens: earlier queries first, and each one's own keys before others.
  static std::vector<ops::AttentionBlock> blocks(int num_ranks, int rank, int owner,
                                                 std::int64_t length, std::int64_t window);

 private:
  std::vector<ops::AttentionBlock> blocks_with(int owner, const Setup& setup,
                                               const Tensor& qkv) const;

  Axis* axis_;
};

}  // namespace atl::nn
