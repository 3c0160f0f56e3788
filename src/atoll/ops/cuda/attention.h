#pragma once

#include "atoll/ops/attention.h"
#include "atoll/ops/implementations.h"

namespace atl::ops::cuda {

// Operands as in ops/attention.h; positions on the device.

Declined attention_forward(Run& run, const HeadLayout& heads, double scale,
                           const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse);
Declined attention_backward(Run& run, const HeadLayout& heads, double scale,
                            const AttentionMask& mask, Tensor qkv, Tensor out, Tensor lse,
                            Tensor dout, Tensor dqkv);

}  // namespace atl::ops::cuda
