#pragma once

#include "atoll/device/sdpa.h"
#include "atoll/ops/attention/attention.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

// Attention by cuDNN, straight on rows of queries, keys and values as the model has them. Operands
// as in ops/attention/attention.h. They decline what cuDNN is not given: all where gpu_attention()
// is kOwn, f32, soft caps, documents, windows, heads that are not a multiple of 8 up to 128, GPUs
// of another architecture than sm_90, and calls whose workspace would be too large.

Declined attention_cudnn_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                                 const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse);
/// In chunks of the batch, so that the workspace of each fits most_workspace_bytes().
Declined attention_cudnn_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                                  const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                                  Tensor dout, Tensor dqkv);
/// 0 where these decline whatever the mask is.
std::size_t attention_cudnn_scratch_bytes(const HeadLayout& heads, const Spec& qkv);

/// How many sequences one backward call is given: the batch in as few chunks as the workspace
/// allows, each as large as the next. 0: not even one sequence fits.
std::int64_t sequences_per_call(const SdpaCall& call);

/// Why cuDNN's attention cannot serve sequences of `length` rows with these heads, whatever else;
/// null: it can. `is_backward` for the gradient too.
Declined cudnn_declines(const HeadLayout& heads, std::int64_t length, bool is_backward);

}  // namespace atl::ops::cuda
