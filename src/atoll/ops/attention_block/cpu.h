#pragma once

// Attention of blocks on the tiles of cpu/attention.h; arguments as in
// ops/attention_block/attention_block.h, already checked.

#include "atoll/ops/attention_block/attention_block.h"

namespace atl::ops::cpu {

void attention_block_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                             const AttentionMask& mask, const AttentionBlock& block, bool is_first,
                             Tensor qkv, Tensor kv, Tensor out, Tensor lse);
void attention_block_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                              const AttentionMask& mask, const AttentionBlock& block, Tensor qkv,
                              Tensor kv, Tensor out, Tensor lse, Tensor dout, Tensor dqkv,
                              Tensor dkv);
std::size_t attention_block_scratch_bytes(const HeadLayout& heads, std::int64_t B,
                                          std::int64_t num_keys);

}  // namespace atl::ops::cpu
