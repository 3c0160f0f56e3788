#include "atoll/ops/cuda/grouped_matmul_mma.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_grouped_matmul_mma_kernels(GpuTable& table) {
  add_compiled<GroupedMmaKernels>(table);
}

}  // namespace atl::ops::cuda
