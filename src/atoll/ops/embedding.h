#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

// Tables have the dtype of the activations, their gradients its compute dtype.

/// y[b, t] = table[tokens[b, t]].  tokens: i32 (B, T)  table: (V, C), also bf16 for an f32 y
/// y: (B, T, C).  Throws Error(kDamaged) naming the first token outside [0, V).
void embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y);
/// dtable[tokens[b, t]] += dy[b, t], in (b, t) order whatever the number of threads.
void embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable);

/// y[b, t] += table[first_position + t - document_start[b, t]].  table: (P, C)  y: (B, T, C)
/// document_start: i32 (B, T) as in AttentionMask, or undefined: 0. Every position must be below P.
/// Throws Error(kDamaged) naming the first document_start that cannot be.
void position_embedding_forward(Run& run, std::int64_t first_position, Tensor document_start,
                                Tensor table, Tensor y);
/// dtable[t - document_start[b, t]] += dy[b, t], in (b, t) order whatever the number of threads.
/// dtable has dy's compute dtype.
void position_embedding_backward(Run& run, Tensor document_start, Tensor dy, Tensor dtable);

}  // namespace atl::ops
