#pragma once

#include <memory>

#include "atoll/nn/attention_core.h"
#include "atoll/nn/linear.h"
#include "atoll/nn/query_key_norm.h"

namespace atl::nn {

/// Causal self-attention with its two projections: qkv = x Wqkv^T, queries and keys normalised when
/// there are scales for it, rotated by position when there is a rope table, attention,
/// y = out Wo^T.  x, y: (B, T, C). Where the batch has positions, documents do not see each other.
class SelfAttention final : public Layer {
 public:
  struct Options {
    ops::HeadLayout heads;
    double scale = 0;                      ///< of the scores; 1 / sqrt(head_dim) in most models
    double softcap = 0;                    ///< see ops::AttentionScores; 0: none
    const Constant* rope_table = nullptr;  ///< (P, R), see ops::rope; null: no rotation
    ops::RotaryPairs rotary_pairs = ops::RotaryPairs::kHalves;
    /// Wqkv has the rows of each head's query, key and value one after the other, as GPT-NeoX's, in
    /// place of all queries, all keys and all values. Every head then has a key-value head of its
    /// own, and no norm of queries and keys.
    bool qkv_by_head = false;
    int index = 0;                 ///< which pair of KvCache tensors is this layer's
    std::int64_t window = 0;       ///< see ops::AttentionMask; 0: none
    ops::RmsScale qk_norm = 1e-6;  ///< see ops::qk_norm_forward
  };
  /// qkv: C -> heads.qkv_width(), out: heads.query_width() -> C. q_norm, k_norm: as in
  /// QueryKeyNorm; empty names mean no such norm. `core` null: this rank has all rows. sinks:
  /// (num_heads), see ops::attention_sinks; an empty name means none.
  SelfAttention(Options options, Linear qkv, Linear out, Param q_norm = {}, Param k_norm = {},
                std::unique_ptr<AttentionCore> core = nullptr, Param sinks = {});

  Footprint plan(Spec x) const override;
  void forward(Run& run, const Pass& pass) override;
  void backward_input(Run& run, const Pass& pass) override;
  void backward_weight(Run& run, const Pass& pass) override;
  void visit(ParamVisitor& visitor) override;

 private:
  AttentionCore::Setup setup() const {
    return {options_.heads, options_.scale, options_.window, options_.softcap, sinks_.value, {}};
  }
  bool has_sinks() const { return !sinks_.name.empty(); }
  std::span<const Tensor> kept_by_core(const Pass& pass) const {
    return pass.kept.subspan(2 + norm_.num_kept());
  }
  void rotate(Run& run, Tensor positions, bool inverse, Tensor qkv) const;
  void project(Run& run, const Pass& pass, const Tensor& qkv);
  void backward_project(Run& run, const Pass& pass, const Tensor& dqkv);
  void attend_to_cache(Run& run, const Tensor& positions, const KvCache& cache, const Tensor& qkv,
                       const Tensor& attended, const Tensor& lse) const;

  Options options_;
  Linear qkv_;
  Linear out_;
  QueryKeyNorm norm_;
  std::unique_ptr<AttentionCore> core_;
  Param sinks_;
};

}  // namespace atl::nn
