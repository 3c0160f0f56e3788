#include "atoll/ops/cuda/narrow_weights.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_narrow_weights_kernels(GpuTable& table) {
  add_compiled<NarrowWeightsKernels>(table);
}

}  // namespace atl::ops::cuda
