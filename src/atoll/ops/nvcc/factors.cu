#include "atoll/ops/cuda/factors.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_factors_kernels(GpuTable& table) {
  add_compiled<FactorsKernels>(table);
}

}  // namespace atl::ops::cuda
