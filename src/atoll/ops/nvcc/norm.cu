#include "atoll/ops/cuda/norm.cuh"

#include "atoll/ops/cuda/norm_wide.cuh"
#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_norm_kernels(GpuTable& table) {
  add_compiled<Joined<NormKernels, WideNormKernels, QkNormKernels>>(table);
}

}  // namespace atl::ops::cuda
