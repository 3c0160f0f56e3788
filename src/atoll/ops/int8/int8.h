#pragma once

// Weights for generation in a quarter of their bytes: int8 with one f32 factor for each group of
// neighbours in a row. Reading is cheaper, and that is what a token costs; arithmetic is f32.

#include "atoll/ops/run.h"

namespace atl::ops {

/// Neighbours in a row that share a factor; the last group of a row may be shorter.
constexpr std::int64_t kInt8Group = 64;

/// A matrix (N, K) of numbers q s: q in [-127, 127], s the factor of the group that q is in.
struct Int8Matrix {
  Tensor values;  ///< (N, K) of kU8: each byte is an int8
  Tensor scales;  ///< f32 (N, ceil(K / kInt8Group))

  bool defined() const { return values.defined(); }
};

/// What an Int8Matrix of this shape (N, K) is made of.
Spec int8_values_spec(const Shape& shape);
Spec int8_scales_spec(const Shape& shape);

/// What rounding did: the sum of squared errors, and that of squares.
struct RoundingError {
  double error = 0;
  double square = 0;
};

/// The nearest Int8Matrix to x, f32 (N, K): every element is off by half its group's factor at
/// most, and the factor is the group's largest magnitude over 127. Throws
/// Error(kNumeric) when an element is not finite.
RoundingError round_to_int8(Run& run, Tensor x, const Int8Matrix& out);

/// y = x W^T [+ bias].  x: f32 (..., K)  W: (N, K)  y: f32 (..., N)  bias: f32 (N), or undefined.
/// Sums run in f32, in an order that depends on the shapes alone; or what int8_arithmetic.h says
/// that this process does. Needs matmul_int8_scratch_bytes of scratch.
void matmul_int8(Run& run, Tensor x, const Int8Matrix& w, Tensor y, Tensor bias = {});
std::size_t matmul_int8_scratch_bytes(const Spec& x, const Shape& w);

/// y[b, t] = table[tokens[b, t]].  tokens: i32 (B, T)  table: (V, C)  y: f32 (B, T, C).
/// Throws Error(kDamaged) naming the first token outside [0, V).
void embedding_int8(Run& run, Tensor tokens, const Int8Matrix& table, Tensor y);

}  // namespace atl::ops
