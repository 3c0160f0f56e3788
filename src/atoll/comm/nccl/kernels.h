#pragma once

namespace atl::comm {

/// OrderedReduce of f32, f64, bf16, i32 and i64, as cudaLaunchKernel takes it.
extern const void* const kOrderedReduceKernels[5];

}  // namespace atl::comm
