#include "atoll/ops/cuda/cross_entropy.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_cross_entropy_kernels(GpuTable& table) {
  add_compiled<CrossEntropyKernels>(table);
}

}  // namespace atl::ops::cuda
