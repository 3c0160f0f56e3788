#pragma once

#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

// Operands as in ops/embedding/embedding.h, on the device; positions may be undefined.

Declined embedding_forward(Run& run, Tensor tokens, Tensor table, Tensor y);
Declined position_embedding_forward(Run& run, Tensor positions, Tensor table, Tensor y);
/// Of tokens or of positions.
Declined embedding_backward(Run& run, Tensor tokens, Tensor dy, Tensor dtable);

}  // namespace atl::ops::cuda
