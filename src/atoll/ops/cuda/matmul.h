#pragma once

#include "atoll/ops/matmul_args.h"

namespace atl::ops::cuda {

/// See ops/matmul.h; f32 and bf16. A GPU's library multiplies; on the fake GPU `ref` does, behind
/// the stream, and the call is recorded. Both decline what the library does not mix; but an f32 `a`
/// beside a bf16 `b` is rounded to bf16 first, in matmul_scratch_bytes.
Declined matmul(Run& run, const MatmulArgs& args);
std::size_t matmul_scratch_bytes(const Spec& a, const Spec& b);

}  // namespace atl::ops::cuda
