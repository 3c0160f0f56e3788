#pragma once

#include "atoll/ops/implementations.h"
#include "atoll/ops/sample_token/sample_token.h"

namespace atl::ops::cuda {

/// See ops/sample_token/sample_token.h; the host learns nothing of the logits.
Declined sample_token(Run& run, const TokenDraw& draw, Tensor logits, Tensor result);
std::size_t sample_token_scratch_bytes(std::int64_t num_tokens);

}  // namespace atl::ops::cuda
