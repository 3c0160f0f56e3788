#pragma once

#include "atoll/ops/implementations.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/args.h"
#include "atoll/ops/matmul/transpose.h"

namespace atl::ops::cuda {

/// ops::grouped_matmul and, for kTN, ops::grouped_matmul_tn, where b is rows and c is dw. With
/// tensor cores where a and b are bf16 and all widths are multiples of 8; kNT with weights in bf16
/// beside rows in f32 too, as generation has them. Operands are the
/// device's, offsets too: the host waits for nothing.
Declined grouped_matmul(Run& run, Transpose transpose, Tensor a, Tensor b, Tensor offsets,
                        Tensor c);

/// ops::grouped_matmul_int8; `rounds`: activations too, with a CPU's bits.
Declined grouped_matmul_int8(Run& run, Tensor a, const Int8Matrix& w, Tensor offsets, Tensor c,
                             bool rounds);

/// A product whose operands have two dtypes, as the router's gradients do: f32 times bf16.
Declined mixed_matmul(Run& run, const MatmulArgs& args);

}  // namespace atl::ops::cuda
