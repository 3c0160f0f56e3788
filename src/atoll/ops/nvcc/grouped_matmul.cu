#include "atoll/ops/cuda/grouped_matmul.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_grouped_matmul_kernels(GpuTable& table) {
  add_compiled<GroupedMatmulKernels>(table);
}

}  // namespace atl::ops::cuda
