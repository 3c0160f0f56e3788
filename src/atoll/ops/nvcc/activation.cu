#include "atoll/ops/cuda/activation.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_activation_kernels(GpuTable& table) {
  add_compiled<ActivationKernels>(table);
}

}  // namespace atl::ops::cuda
