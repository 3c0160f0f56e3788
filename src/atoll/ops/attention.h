#pragma once

#include "atoll/ops/rope.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// Causal grouped-query attention, softmax(scale q k^T) v, in O(T) memory: tiles with a running
/// softmax (Dao et al. 2022), never a T x T matrix.
///
/// qkv: (B, T, heads.qkv_width())  out: (B, T, heads.query_width())
/// lse: (B, num_heads, T) log-sum-exp of each row's scaled scores, kept for backward.
/// Query head h attends with key-value head h / (num_heads / num_kv_heads).
void attention_forward(Run& run, const HeadLayout& heads, double scale, Tensor qkv, Tensor out,
                       Tensor lse);

/// dqkv = gradient of attention_forward for dout (Dao et al. 2022, algorithm 4). Fills all of dqkv.
/// Needs attention_scratch_bytes of scratch.
void attention_backward(Run& run, const HeadLayout& heads, double scale, Tensor qkv, Tensor out,
                        Tensor lse, Tensor dout, Tensor dqkv);
std::size_t attention_scratch_bytes(const HeadLayout& heads, const Spec& qkv);

/// Generation: stores the T new keys and values at [past, past + T) of the caches, then attends
/// each new query to everything up to its own position.
///
/// qkv: (B, T, qkv_width)  k_cache, v_cache: (B, P, kv_width), past + T <= P
/// out: (B, T, query_width). Needs attention_scratch_bytes of scratch.
void attention_cached(Run& run, const HeadLayout& heads, double scale, std::int64_t past,
                      Tensor qkv, Tensor k_cache, Tensor v_cache, Tensor out);

}  // namespace atl::ops
