#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "atoll/ops/attention/attention.h"
#include "atoll/tensor/batch.h"

namespace atl::nn {

/// What stands between the two projections of self-attention: from queries, keys and values, which
/// are normalised and rotated, to attended values. Another core serves ranks that have parts of
/// each sequence; SelfAttention does not know which it has.
class AttentionCore {
 public:
  /// What all calls of a layer have in common.
  struct Setup {
    ops::HeadLayout heads;
    double scale = 0;         ///< of the scores
    std::int64_t window = 0;  ///< see ops::AttentionMask
    double softcap = 0;       ///< see ops::AttentionScores; 0: none
    Tensor sinks;             ///< (num_heads), see ops::attention_sinks; undefined: none
    Tensor dsinks;            ///< backward fills it, in the compute dtype, of this rank's rows

    ops::AttentionScores scores() const { return {scale, softcap}; }
    /// Puts the sinks, where there are any, into what attention gave.
    void add_sinks(Run& run, const Tensor& out, const Tensor& lse) const;
    /// Fills dsinks, where there are any, from what add_sinks left and the gradient of out.
    void backward_sinks(Run& run, const Tensor& out, const Tensor& lse, const Tensor& dout) const;
  };
  /// Memory from forward to B, in order, and scratch of either.
  struct Footprint {
    std::vector<Spec> kept;
    std::size_t scratch_bytes = 0;
  };

  virtual ~AttentionCore() = default;
  /// For this rank's rows, (B, T, heads.qkv_width()).
  virtual Footprint plan(const Setup& setup, const Spec& qkv) const = 0;
  /// out: (B, T, heads.query_width()). `batch` may be null: one document a sequence.
  virtual void forward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                       const Tensor& out, std::span<const Tensor> kept) = 0;
  /// Fills dqkv from dout, of the same rows.
  virtual void backward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                        const Tensor& out, std::span<const Tensor> kept, const Tensor& dout,
                        const Tensor& dqkv) = 0;
};

/// This rank has all rows of its sequences. Keeps each row's log-sum-exp.
class WholeAttention final : public AttentionCore {
 public:
  Footprint plan(const Setup& setup, const Spec& qkv) const override;
  void forward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
               const Tensor& out, std::span<const Tensor> kept) override;
  void backward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                const Tensor& out, std::span<const Tensor> kept, const Tensor& dout,
                const Tensor& dqkv) override;
};

}  // namespace atl::nn
