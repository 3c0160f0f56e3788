#pragma once

// Embeddings of f32 and bf16 on vector units; arguments as in ops/embedding/embedding.h, already
// checked.

#include "atoll/ops/run.h"

namespace atl::ops::cpu {

void embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y);
void embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable);
/// The same of a table whose row 0 is token `first`; tokens that it does not have are left out.
void embedding_part_backward(Run& run, std::int64_t first, Tensor tokens, Tensor dy, Tensor dtable);
void position_embedding_forward(Run& run, Tensor positions, Tensor table, Tensor y);
void position_embedding_backward(Run& run, Tensor positions, Tensor dy, Tensor dtable);

}  // namespace atl::ops::cpu
