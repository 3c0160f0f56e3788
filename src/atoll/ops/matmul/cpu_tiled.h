#pragma once

// Matrix products in f32 by our own kernel: tiles of c that fill the registers, each read and
// written once for a long stretch of its sums. Every operand is packed at most once a product, into
// memory that stays in a core's cache, so that no copy of a whole weight is ever made.

#include <cstddef>

#include "atoll/ops/matmul/args.h"

namespace atl::ops::cpu {

/// c = op(a) op(b) [+ bias] [+ c], all f32 and laid out as in ops::matmul. Each sum runs over k in
/// stretches whose length depends on K alone: neither tiles nor threads change a bit.
struct TiledProduct {
  MatmulShape shape;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  const float* bias = nullptr;  ///< or nullptr
  bool accumulate = false;
};

/// Carries it out for any m, n >= 1 and k >= 1. Needs tiled_scratch_bytes of scratch.
void multiply_tiled(Run& run, const TiledProduct& product);

/// Room for the operand that all threads share, packed: only kTN has one. For the instruction set
/// at hand.
std::size_t tiled_scratch_bytes(const MatmulShape& shape);

/// Rows of c, and columns, from which on packing b is repaid.
constexpr std::int64_t kRowsThatRepayPacking = 128;
constexpr std::int64_t kColumnsThatRepayPacking = 32;

/// multiply_tiled for f32 in host memory, unless c has too few rows or columns.
Declined matmul_tiled(Run& run, const MatmulArgs& args);
/// Scratch of matmul_tiled: none where it declines.
std::size_t matmul_tiled_scratch_bytes(const MatmulShape& shape);

}  // namespace atl::ops::cpu
