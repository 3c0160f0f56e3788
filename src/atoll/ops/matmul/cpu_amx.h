#pragma once

// Matrix products of bf16 by our own tiles for Intel's AMX. Either operand is packed at most once a
// product, piece by piece into a core's cache; rows of a are read where they lie.

#include <cstddef>

#include "atoll/ops/matmul/args.h"

namespace atl::ops::cpu {

/// c = op(a) op(b) [+ bias] [+ c] with op(a) and b in bf16. Each sum runs over k in stretches whose
/// length depends on K alone: neither blocks nor threads change a bit.
struct AmxMatmul {
  MatmulShape shape;
  const Bf16* a = nullptr;
  std::int64_t lda = 0;  ///< elements from one stored row of a to the next
  /// Whether a is the sum of two bf16: each 32 elements of a stored row are followed by their
  /// lower halves (split_rows); lda then counts both, and the last 32 are padded by zeros.
  bool two_terms = false;
  const Bf16* b = nullptr;
  std::int64_t ldb = 0;
  Tensor c;  ///< bf16 or f32
  std::int64_t ldc = 0;
  Tensor bias;  ///< bf16 or f32; or undefined
  bool accumulate = false;
};

/// Carries it out for any m, n, k >= 1 where simd::has_amx(). Needs amx_scratch_bytes of scratch.
void multiply_amx(Run& run, const AmxMatmul& product);
/// Room for the operand that all threads share, packed: only kTN has one.
std::size_t amx_scratch_bytes(const MatmulShape& shape, bool two_terms);

/// multiply_amx for a and b in bf16 and c in bf16 or f32, in host memory, where bf16_arithmetic()
/// says so; but not for products too small to repay packing.
Declined matmul_amx(Run& run, const MatmulArgs& args);
/// The same whatever bf16_arithmetic() says.
Declined serve_amx(Run& run, const MatmulArgs& args);
/// Scratch of matmul_amx on the CPU at hand, whatever bf16_arithmetic() says.
std::size_t matmul_amx_scratch_bytes(const MatmulShape& shape);

}  // namespace atl::ops::cpu
