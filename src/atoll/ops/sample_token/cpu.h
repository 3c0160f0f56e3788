#pragma once

#include <cstdint>
#include <span>

#include "atoll/ops/sample_token/sample_token.h"

namespace atl::ops::cpu {

/// See ops/sample_token/sample_token.h. `ranks` and `weights` are of as many elements as the
/// logits, to be overwritten.
DrawnToken sample_token(const TokenDraw& draw, std::span<const float> logits,
                        std::span<std::uint64_t> ranks, std::span<std::uint64_t> weights);

}  // namespace atl::ops::cpu
