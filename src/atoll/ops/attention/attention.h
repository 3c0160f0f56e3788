#pragma once

#include "atoll/ops/rope/rope.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// What becomes of the product of a query and a key before the mask and the softmax.
struct AttentionScores {
  /// A number alone is a scale.
  // NOLINTNEXTLINE(google-explicit-constructor)
  AttentionScores(double factor, double cap = 0) : scale(factor), softcap(cap) {}

  double scale;
  /// A scaled product s becomes softcap * tanh(s / softcap), which stays below softcap (Gemma 2's
  /// `attn_logit_softcapping`); 0: it stays s.
  double softcap;
};

/// Which earlier keys a query sees, beside causality. Query t's own key is at t; the first that it
/// sees is the largest of t - positions[b, t], t - window + 1 and 0.
struct AttentionMask {
  /// Each query sees itself and the window - 1 keys before it (Beltagy et al. 2020; Mistral's
  /// `sliding_window`); 0: no limit.
  std::int64_t window = 0;
  /// i32 (B, T): the position of each query in its document. The first of a sequence is 0, and each
  /// is at most one more than the position before it. Undefined: each sequence is one document.
  Tensor positions;
};

/// Causal grouped-query attention, softmax(scores of q k^T) v, in O(T) memory: tiles with a running
/// softmax (Dao et al. 2022), never a T x T matrix. Time follows what `mask` lets be seen.
///
/// qkv: (B, T, heads.qkv_width())  out: (B, T, heads.query_width())
/// lse: (B, num_heads, T) log-sum-exp of each row's scores, in qkv's compute dtype, kept for
/// backward.
/// Query head h attends with key-value head h / (num_heads / num_kv_heads).
/// Throws Error(kDamaged) naming the first position that cannot be.
void attention_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                       const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse);

/// dqkv = gradient of attention_forward for dout (Dao et al. 2022, algorithm 4). Fills all of dqkv.
/// Needs attention_scratch_bytes of scratch.
void attention_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                        const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse, Tensor dout,
                        Tensor dqkv);
/// Scratch of attention_backward and attention_cached for a qkv of this spec, whatever the mask.
std::size_t attention_scratch_bytes(const HeadLayout& heads, const Spec& qkv);

/// Generation: stores the T new keys and values at [key_offset, key_offset + T) of the caches, then
/// attends each new query to everything up to its own key, or to the last `window` of it (0: all).
/// Each cache holds one document: mask.positions, where defined, are key_offset + t.
///
/// qkv: (B, T, qkv_width)  k_cache, v_cache: (B, P, kv_width), key_offset + T <= P
/// out: (B, T, query_width). Needs attention_scratch_bytes of scratch.
void attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                      const AttentionMask& mask, std::int64_t key_offset, Tensor qkv,
                      Tensor k_cache, Tensor v_cache, Tensor out);

}  // namespace atl::ops
