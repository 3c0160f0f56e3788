#pragma once

// Attention sinks: one learned logit for each query head that joins the softmax's denominator and
// has no value (Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks";
// OpenAI 2025, gpt-oss). Every attention gives a row's log-sum-exp, and a sink changes a row by one
// factor: with lse' = log(exp(lse) + exp(sink)), out' = exp(lse - lse') out. So that no kernel need
// know of sinks, and rows depend on no other rows.

#include <cstdint>
#include <span>

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/attention/attention_paged.h"

namespace atl::ops {

/// Puts a sink into what an attention gave: out and lse become those of a softmax with it.
/// attention_backward for these out and lse then gives the gradients of queries, keys and values.
///
/// sinks: (num_heads), f32, f64 or bf16  out: (B, T, heads.query_width())  lse: (B, num_heads, T)
/// in out's compute dtype. On a CPU only.
void attention_sinks(Run& run, const HeadLayout& heads, Tensor sinks, Tensor out, Tensor lse);

/// dsinks[h] = - sum over rows of exp(sinks[h] - lse) (dout . out), of what attention_sinks gave.
/// dsinks: (num_heads) in out's compute dtype; each is summed in f64, sequence by sequence.
void attention_sinks_backward(Run& run, const HeadLayout& heads, Tensor sinks, Tensor out,
                              Tensor lse, Tensor dout, Tensor dsinks);

/// attention_cached of attention.h, which gives lse, (B, num_heads, T), too. On a CPU only.
void attention_cached(Run& run, const HeadLayout& heads, AttentionScores scores,
                      const AttentionMask& mask, std::int64_t key_offset, Tensor qkv,
                      Tensor k_cache, Tensor v_cache, Tensor out, Tensor lse);

/// attention_paged of attention_paged.h, which gives lse, f32 (1, num_heads, R), too; 0 for rows
/// that belong to no sequence.
void attention_paged(Run& run, const HeadLayout& heads, AttentionScores scores, std::int64_t window,
                     std::span<const PagedRows> sequences, std::int64_t block_size, Tensor qkv,
                     Tensor k_cache, Tensor v_cache, Tensor out, Tensor lse);

}  // namespace atl::ops
