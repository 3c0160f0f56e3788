#pragma once

#include "atoll/ops/profile.h"
#include "atoll/ops/run.h"

namespace atl::ops {

// Tables have the dtype of the activations, their gradients its compute dtype.

/// Throws Error(kDamaged) naming the first token outside [0, vocab_size). tokens: i32 (B, T), in
/// memory of the host; a GPU's are checked before they are copied there, and not here.
void check_tokens(const Tensor& tokens, std::int64_t vocab_size);

/// y[b, t] = table[tokens[b, t]].  tokens: i32 (B, T)  table: (V, C), also bf16 for an f32 y
/// y: (B, T, C).  Throws Error(kDamaged) naming the first token outside [0, V).
void embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y);
/// dtable[tokens[b, t]] += dy[b, t], in (b, t) order whatever the number of threads. On a GPU it
/// needs embedding_backward_scratch_bytes of scratch, for the rows in the order of their tokens.
void embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable);

/// y[b, t] += table[positions[b, t]].  table: (P, C)  y: (B, T, C)
/// positions: i32 (B, T), or undefined: row t of each sequence is at t. Throws Error(kInternal)
/// naming the first position that is not below P.
void position_embedding_forward(Run& run, Tensor positions, Tensor table, Tensor y);
/// dtable[positions[b, t]] += dy[b, t], in (b, t) order whatever the number of threads.
/// dtable has dy's compute dtype. Scratch as embedding_backward, where positions are defined.
void position_embedding_backward(Run& run, Tensor positions, Tensor dy, Tensor dtable);

/// Scratch for so many rows.
std::size_t embedding_backward_scratch_bytes(std::int64_t rows);
/// The cost of these: rows of dtable are read and written, as many as there may be with a token.
OpCost embedding_backward_cost(const Tensor& tokens, const Tensor& dy, const Tensor& dtable);

}  // namespace atl::ops
