#pragma once

#include <memory>

#include "atoll/nn/attention_core.h"
#include "atoll/nn/latent/latent_shape.h"
#include "atoll/nn/linear.h"
#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/norm/norm.h"

namespace atl::nn {

/// Causal self-attention by a latent vector (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1):
///
///   c, k_r = x Wdown^T, c' = norm(c);  of each head: k = [rotated k_r, content of c' Wup^T],
///   v = the rest of c' Wup^T;  q = [rotated part, content] of x Wq^T, or of norm(x Wqdown^T) Wq^T;
///   y = attention(q, k, v) Wo^T.  x, y: (B, T, C).
///
/// Keys and values are made for each head in full, in training and in a cache: nothing is kept in
/// the latent form. A head has heads.head_dim elements in memory, of which a query and a key use
/// shape.query_dim() and a value shape.value_dim; the others are 0. Where the batch has positions,
/// documents do not see each other.
class LatentAttention final : public Layer {
 public:
  struct Options {
    ops::HeadLayout heads;  ///< of this rank; as many key-value heads as heads
    LatentShape shape;
    double scale = 0;                      ///< of the scores
    const Constant* rope_table = nullptr;  ///< (P, shape.rotary_dim), see ops::rope
    int index = 0;                         ///< which pair of KvCache tensors is this layer's
    ops::RmsScale norm = 1e-6;             ///< of the latent vectors
  };
  struct Projections {
    /// C -> query_rank, with the norm's weight, (query_rank); null: queries are made of x.
    std::unique_ptr<Linear> query_down;
    Param query_norm;
    Linear query;       ///< -> heads x (content, rotary)
    Linear latent;      ///< C -> kv_rank + rotary_dim
    Param latent_norm;  ///< (kv_rank)
    Linear key_value;   ///< kv_rank -> heads x (content, value)
    Linear out;         ///< heads x value -> C
  };
  /// `core` null: this rank has all rows.
  LatentAttention(Options options, Projections projections,
                  std::unique_ptr<AttentionCore> core = nullptr);

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  // The tensors of a pass over these rows.
  struct Specs {
    Spec qkv, attended, values, query, key_value, down, latent, query_latent, statistics;
  };
  Specs specs(const Spec& x) const;
  AttentionCore::Setup setup() const { return {options_.heads, options_.scale, 0, 0, {}, {}}; }
  bool has_query_latent() const { return to_.query_down != nullptr; }
  std::size_t kept_before_core() const;
  std::span<const Tensor> kept_by_core(const Pass& pass) const {
    return pass.kept.subspan(kept_before_core());
  }
  void make_queries(Run& run, const Pass& pass, const Specs& specs);
  void make_keys_and_values(Run& run, const Pass& pass, const Specs& specs);
  void attend(Run& run, const Pass& pass) const;
  void backward_attention(Run& run, const Pass& pass, const Specs& specs, const Tensor& dqkv);
  void backward_keys_and_values(Run& run, const Pass& pass, const Specs& specs, const Tensor& dqkv);
  void backward_queries(Run& run, const Pass& pass, const Specs& specs, const Tensor& dqkv);
  void rotate(Run& run, const Pass& pass, bool inverse, const Tensor& qkv) const;
  Tensor sum_rotated_keys(Run& run, const Tensor& dqkv) const;

  // Where parts of heads lie: in rows of queries, keys and values together, and apart.
  enum class Which { kQuery, kKey, kValue };
  ops::BlockPlaces in_fused(Which which, std::int64_t first) const;
  static ops::BlockPlaces in_heads(std::int64_t num_heads, std::int64_t width, std::int64_t first) {
    return {first, num_heads * width, width};
  }
  // Copies `width` elements of each head, of the row's places to the others.
  void copy_heads(Run& run, std::int64_t width, const Tensor& from, ops::BlockPlaces from_places,
                  const Tensor& to, ops::BlockPlaces to_places) const;

  Options options_;
  Projections to_;
  std::unique_ptr<AttentionCore> core_;
};

}  // namespace atl::nn
