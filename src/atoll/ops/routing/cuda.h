#pragma once

#include "atoll/ops/implementations.h"
#include "atoll/ops/routing/routing.h"

namespace atl::ops::cuda {

// Operands as in ops/routing/routing.h, on the device. Need routing_scratch_bytes of scratch.

Declined route_tokens(Run& run, bool normalize, Tensor logits, Tensor experts, Tensor weights);
Declined route_tokens_backward(Run& run, bool normalize, const RouterLosses& losses, Tensor logits,
                               Tensor experts, Tensor weights, Tensor dweights, Tensor dlogits);
Declined count_choices(Run& run, Tensor experts, Tensor counts);
Declined add_router_sums(Run& run, Tensor logits, Tensor experts, Tensor places, Tensor sums,
                         Tensor counts);
std::size_t routing_scratch_bytes(const Shape& choices, std::int64_t num_experts);

}  // namespace atl::ops::cuda
