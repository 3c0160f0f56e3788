#pragma once

// Products of matrices in 8 bits, which tensor cores multiply at twice the rate of bf16. Each
// operand is scaled into the range of its format and rounded just before a product; sums are f32.

#include "atoll/ops/fp8/layout.h"
#include "atoll/ops/run.h"

namespace atl::ops {

/// A matrix (outer, k) of numbers that are an 8-bit number times a scale, as cuBLASLt takes it.
struct Fp8Matrix {
  Fp8Format format = Fp8Format::kE4M3;
  Fp8Tile tile = Fp8Tile::kTensor;
  Tensor codes;   ///< u8 (outer, k)
  Tensor scales;  ///< f32, of fp8_scales_spec()

  /// The index of the scale of element (i, j).
  std::int64_t scale_at(std::int64_t i, std::int64_t j) const;
};

/// kTensor: one. kRow: (ceil(k / 128), outer). kBlock: (ceil(outer / 128), ceil(k / 128) rounded up
/// to a multiple of 4); what is more than ceil(k / 128) is 0.
Spec fp8_scales_spec(Fp8Tile tile, std::int64_t outer, std::int64_t k);

/// The nearest matrix to x: each scale is the largest magnitude of its numbers over the largest
/// number of the format, and NaN where one of them is not finite.
/// x: bf16 (outer, k), or (k, outer) where `transposed`; leading dims are folded. Dims are
/// multiples of kFp8Multiple. Needs round_to_fp8_scratch_bytes of scratch.
void round_to_fp8(Run& run, Tensor x, bool transposed, const Fp8Matrix& out);
std::size_t round_to_fp8_scratch_bytes(std::int64_t elements);

/// c = a b^T [+ bias] [+ residual, or + c].  a: (M, K)  b: (N, K)  c: (M, N), bf16 or f32.
/// bias: bf16 (N), or undefined, beside a bf16 c.  residual: bf16 (M, N), or undefined. On a CPU
/// the product runs in f32, on copies that it takes from the heap.
void matmul_fp8(Run& run, const Fp8Matrix& a, const Fp8Matrix& b, Tensor c, Fp8Sums sums,
                Tensor bias = {}, bool accumulate = false, Tensor residual = {});

/// The products of a linear layer, whose operands are rounded here. x and W become e4m3; dy, which
/// needs the wider range where a whole tensor shares a scale, e5m2 there. All are bf16, but dw:
/// f32, which is added to. With one scale for a tensor the forward pass has fast sums, as NVIDIA's
/// Transformer Engine has it. x: (..., C)  w: (F, C)  y, dy: (..., F)  bias: (F), or undefined.
/// They need linear_fp8_scratch_bytes of scratch.
void linear_fp8(Run& run, Fp8Scaling scaling, Tensor x, Tensor w, Tensor y, Tensor bias = {},
                Tensor residual = {});
void linear_fp8_backward_input(Run& run, Fp8Scaling scaling, Tensor dy, Tensor w, Tensor dx);
void linear_fp8_backward_weight(Run& run, Fp8Scaling scaling, Tensor dy, Tensor x, Tensor dw);
std::size_t linear_fp8_scratch_bytes(const Spec& x, const Spec& w);

}  // namespace atl::ops
