#pragma once

#include "atoll/ops/attention_block/attention_block.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

/// The operands of ops/attention_block/attention_block.h, checked; positions on the device.
struct AttentionBlockArgs {
  HeadLayout heads;
  AttentionScores scores;
  AttentionMask mask;
  AttentionBlock block;
  bool is_first;
  Tensor qkv, kv, out, lse;
  Tensor dout, dqkv, dkv;  // of a gradient
};

Declined attention_block_forward(Run& run, const AttentionBlockArgs& args);
Declined attention_block_backward(Run& run, const AttentionBlockArgs& args);

// With tensor cores: bf16, heads of at most 128 elements in multiples of 8, no soft cap.

Declined attention_block_mma_forward(Run& run, const AttentionBlockArgs& args);
/// Needs the scratch below for as many queries.
Declined attention_block_mma_backward(Run& run, const AttentionBlockArgs& args);
std::size_t attention_block_mma_scratch_bytes(const HeadLayout& heads, std::int64_t B,
                                              std::int64_t num_queries);

}  // namespace atl::ops::cuda
