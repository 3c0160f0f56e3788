#pragma once

#include "atoll/ops/run.h"

namespace atl::ops {

/// y[b, t] = table[tokens[b, t]].  tokens: i32 (B, T)  table: (V, C)  y: (B, T, C).
/// Throws Error(kDamaged) naming the first token outside [0, V).
void embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y);
/// dtable[tokens[b, t]] += dy[b, t], in (b, t) order whatever the number of threads.
void embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable);

/// y[b, t] += table[first_position + t].  table: (P, C)  y: (B, T, C), first_position + T <= P.
void position_embedding_forward(Run& run, std::int64_t first_position, Tensor table, Tensor y);
/// dtable[t] += sum over b of dy[b, t].
void position_embedding_backward(Run& run, Tensor dy, Tensor dtable);

}  // namespace atl::ops
