#include "atoll/ops/cuda/elementwise.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_elementwise_kernels(GpuTable& table) {
  add_compiled<ElementwiseKernels>(table);
}

}  // namespace atl::ops::cuda
