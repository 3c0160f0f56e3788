#pragma once

// Tiled attention of f32 and bf16 on vector units; arguments as in ops/attention/attention.h,
// already checked.

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/attention/cpu_shape.h"

namespace atl::ops::cpu {

/// The widest head whose tiles fit the fixed buffers.
constexpr std::int64_t kMaxHeadDim = kMaxTiledHeadDim;

void attention_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                       const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse);
void attention_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                        const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse, Tensor dout,
                        Tensor dqkv);
std::size_t attention_backward_scratch_bytes(const HeadLayout& heads, const Spec& qkv);

/// T >= 1 new queries against caches that hold their keys and values already. lse: (B, num_heads,
/// T) f32, or undefined.
void attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                      std::int64_t window, std::int64_t key_offset, Tensor qkv, Tensor k_cache,
                      Tensor v_cache, Tensor out, Tensor lse);
/// Scratch of attention_cached: partial results of a long cache's key ranges.
std::size_t attention_cached_scratch_bytes(const HeadLayout& heads, const Spec& qkv);

}  // namespace atl::ops::cpu
