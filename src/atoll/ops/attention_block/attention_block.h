#pragma once

#include "atoll/ops/attention/attention.h"

namespace atl::ops {

/// Attention piece by piece: a stretch of queries and one of keys, of sequences that no rank has
/// whole. Row query_row + i of the queries' tensors is token first_query + i of its sequence, and
/// row key_row + j of those of keys is token first_key + j.
struct AttentionBlock {
  std::int64_t query_row = 0;
  std::int64_t first_query = 0;
  std::int64_t num_queries = 0;
  std::int64_t key_row = 0;
  std::int64_t first_key = 0;  ///< at most first_query
  std::int64_t num_keys = 0;
};

/// Pairs of a query and a key that it sees, of one sequence and head, where that is one document.
std::int64_t visible_pairs(const AttentionBlock& block, std::int64_t window);

/// What the queries have attended to once these keys are among them: with the result of earlier
/// calls for other keys, out and lse, and that of this block alone, o and l,
/// lse' = log(e^lse + e^l), out' = e^(lse - lse') out + e^(l - lse') o
/// (Milakov & Gimelshein 2018; Liu et al. 2023, "Ring Attention"). Causal, as attention_forward.
///
/// qkv: (B, R, heads.qkv_width()), of which queries are read
/// kv: (B, S, 2 heads.kv_width()), keys and then values of a row, in qkv's dtype
/// out: (B, R, heads.query_width()) and lse: (B, num_heads, R), in the compute dtype. A query that
/// has seen no key has 0 and -infinity there. `is_first`: out and lse are filled, whatever they
/// hold. mask.positions: i32 (B, R), of each query in its document, which began at most
/// first_query + i tokens before. Throws Error(kDamaged) naming the first that cannot be.
void attention_block_forward(Run& run, const HeadLayout& heads, AttentionScores scores,
                             const AttentionMask& mask, const AttentionBlock& block, bool is_first,
                             Tensor qkv, Tensor kv, Tensor out, Tensor lse);

/// Adds to dqkv and dkv what the gradient of attention owes to this block, where `out` and `lse`
/// are the results of all its blocks, and out is in qkv's dtype. The gradient of queries is added
/// to those of dqkv, (B, R, heads.qkv_width()), and that of keys and values to dkv,
/// (B, S, 2 heads.kv_width()), both in the compute dtype. Needs attention_block_scratch_bytes.
void attention_block_backward(Run& run, const HeadLayout& heads, AttentionScores scores,
                              const AttentionMask& mask, const AttentionBlock& block, Tensor qkv,
                              Tensor kv, Tensor out, Tensor lse, Tensor dout, Tensor dqkv,
                              Tensor dkv);
/// Scratch of attention_block_backward for B sequences and blocks of so many keys.
std::size_t attention_block_scratch_bytes(const HeadLayout& heads, std::int64_t B,
                                          std::int64_t num_keys);

}  // namespace atl::ops
