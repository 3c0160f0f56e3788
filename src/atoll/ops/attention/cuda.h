#pragma once

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

// Operands as in ops/attention/attention.h; positions on the device.

Declined attention_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                           const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse);
Declined attention_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                            const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                            Tensor dout, Tensor dqkv);
/// The keys and values of the new rows are in the caches already.
Declined attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                          std::int64_t window, std::int64_t key_offset, Tensor qkv, Tensor k_cache,
                          Tensor v_cache, Tensor out);
Declined store_keys(Run& run, const HeadLayout& heads, std::int64_t key_offset, Tensor qkv,
                    Tensor k_cache, Tensor v_cache);

// With tensor cores: bf16, heads of at most 128 elements in multiples of 8, no soft cap.

Declined attention_mma_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                               const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse);
Declined attention_mma_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                                const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                                Tensor dout, Tensor dqkv);
Declined attention_mma_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                              std::int64_t window, std::int64_t key_offset, Tensor qkv,
                              Tensor k_cache, Tensor v_cache, Tensor out);
std::size_t attention_mma_scratch_bytes(const HeadLayout& heads, const Spec& qkv);

}  // namespace atl::ops::cuda
