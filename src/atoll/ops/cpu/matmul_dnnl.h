#pragma once

// Matrix products by oneDNN: the product is cut into blocks whose sizes depend on the shape alone,
// each block is one single-threaded primitive, and our own threads share the blocks out. That, and
// not oneDNN's threading, is why the number of threads changes no bit.

#include "atoll/ops/matmul_args.h"

namespace atl::ops::cpu {

/// Serves f32 in host memory; repacks b into the scratch when the rows of c repay it.
Declined matmul_dnnl(Run& run, const MatmulArgs& args);

std::size_t matmul_dnnl_scratch_bytes(const MatmulShape& shape);

/// Bytes that pack_b may fill for this shape: an upper bound that asks no CPU.
std::size_t packed_b_bytes(const MatmulShape& shape);

/// How many rows of c, over all the products that share it, repay a packed b.
constexpr std::int64_t kRowsThatRepayPacking = 512;

/// Takes packed_b_bytes off the front of run.scratch.
std::byte* take_packed_b(Run& run, const MatmulShape& shape);

/// Repacks b (K, N), or (N, K) for kNT, into `packed` (packed_b_bytes) in the layout that this
/// CPU's kernels read best. False when they read b as it is: then nothing was written. The layout
/// belongs to this very shape, its M included.
bool pack_b(Run& run, const MatmulShape& shape, const float* b, std::byte* packed);

/// The operands of multiply, laid out as in ops::matmul.
struct Operands {
  const float* a;
  const float* b;
  const std::byte* packed;  ///< b from pack_b for the same shape, or nullptr: read b
  float* c;
  const float* bias;  ///< or nullptr
};

/// c = op(a) op(b) [+ bias] [+ c] in f32. Throws Error(kInternal) with oneDNN's words.
void multiply(Run& run, const MatmulShape& shape, const Operands& operands, bool accumulate);

}  // namespace atl::ops::cpu
