#pragma once

#include "atoll/nn/attention_core.h"
#include "atoll/nn/axis.h"

namespace atl::nn {

/// Ranks that have neighbouring parts of each sequence (Jacobs et al. 2023, "DeepSpeed Ulysses"):
/// before attention each rank gets all rows of 1 / c of the heads, after it the attended values of
/// its own rows again, by an all-to-all each way. With c ranks, rank r has rows [r T / c, (r + 1) T
/// / c) of each sequence of T; c must divide the heads and the key-value heads.
///
/// Elements that a rank sends for a micro-batch of B sequences, times (c - 1) / c: B T / c of
/// qkv_width and query_width forward, and the same backward.
class UlyssesAttention final : public AttentionCore {
 public:
  /// `axis` must outlive this.
  explicit UlyssesAttention(Axis* axis) : axis_(axis) {}

  Footprint plan(const Setup& setup, const Spec& qkv) const override;
  void forward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
               const Tensor& out, std::span<const Tensor> kept) override;
  void backward(Run& run, const Setup& setup, const Batch* batch, const Tensor& qkv,
                const Tensor& out, std::span<const Tensor> kept, const Tensor& dout,
                const Tensor& dqkv) override;

 private:
  ops::HeadLayout part(const ops::HeadLayout& heads) const;
  /// `setup` with this rank's part of the heads and of what there is of each head.
  Setup of_part(const Setup& setup) const;
  ops::AttentionMask mask(const Setup& setup, const Batch* batch) const;
  Spec all_rows(const Spec& mine) const;
  /// Rows of all heads, (B, T / c, sum of widths), to all rows of a part of the heads,
  /// (B, T, sum of widths / c), and back. `widths`: of the groups of heads that are shared evenly
  /// each, one after the other in a row.
  void to_heads(Run run, std::span<const std::int64_t> widths, const Tensor& rows,
                const Tensor& heads) const;
  void to_rows(Run run, std::span<const std::int64_t> widths, const Tensor& heads,
               const Tensor& rows) const;

  Axis* axis_;
};

}  // namespace atl::nn
