#pragma once

// Attention of training in bf16 by tiles of AMX; arguments as in ops/attention/attention.h, already
// checked. Scores, their softmax and all sums are f32. Probabilities and the gradient of scores are
// rounded to bf16 once, as the operands of the products that follow.

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cpu {

/// Where bf16_arithmetic() says so, for heads and contexts whose keys and values stay in a core's
/// cache: head_dim a multiple of 32 up to 128, T * head_dim up to 131,072, no soft cap. Each thread
/// keeps some 5 MiB from its first call on.
Declined attention_amx_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                               const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse);
/// The same for gradients: a task for each sequence and key-value head.
Declined attention_amx_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                                const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                                Tensor dout, Tensor dqkv);

}  // namespace atl::ops::cpu
