#include "atoll/ops/cuda/expert_rows.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_expert_rows_kernels(GpuTable& table) {
  add_compiled<ExpertRowsKernels>(table);
}

}  // namespace atl::ops::cuda
