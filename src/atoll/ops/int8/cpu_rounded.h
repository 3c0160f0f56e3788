#pragma once

// Products of activations that are rounded to int8 with int8 weights.

#include <cstddef>
#include <cstdint>

#include "atoll/ops/implementations.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/int8/int8_arithmetic.h"

namespace atl::ops::cpu {

/// y = round(x) W^T [+ bias] in kVector, kVnni or kAmx, which the CPU must have.  x: f32 (M, K).
/// Tensors are in host memory.
Declined int8_rounded(Run& run, Int8Arithmetic arithmetic, const Tensor& x, const Int8Matrix& w,
                      const Tensor& y, const Tensor& bias);
/// Scratch that it needs.
std::size_t int8_rounded_scratch_bytes(std::int64_t m, std::int64_t k);

}  // namespace atl::ops::cpu
