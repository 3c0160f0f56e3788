#pragma once

#include "atoll/ops/matmul/args.h"

namespace atl::ops::cuda {

/// See ops/matmul/matmul.h; f32 and bf16. A GPU's library multiplies; on the fake GPU `ref` does,
/// behind the stream, and the call is recorded. Both decline what the library does not mix; but an
/// f32 `a` beside a bf16 `b` is rounded to bf16 first, in matmul_scratch_bytes.
Declined matmul(Run& run, const MatmulArgs& args);
std::size_t matmul_scratch_bytes(const Spec& a, const Spec& b);

/// The product with args.hidden, which is that of `kind`: bf16 and tanh's alone, rows of whole 16
/// bytes, and on a GPU from Hopper on, before which the library's is slower than a kernel of its
/// own.
Declined matmul_gelu(Run& run, Gelu kind, const MatmulArgs& args);

}  // namespace atl::ops::cuda
