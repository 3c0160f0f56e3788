#pragma once

#include "atoll/nn/model.h"
#include "atoll/ops/fp8/layout.h"

namespace atl::nn {

/// Every Linear of the model multiplies in 8 bits from now on; its weights stay bf16. Embeddings,
/// the head, routers and experts do not.
void use_fp8(Model& model, ops::Fp8Scaling scaling);

}  // namespace atl::nn
