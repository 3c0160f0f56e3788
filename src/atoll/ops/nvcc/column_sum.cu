#include "atoll/ops/cuda/column_sum.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_column_sum_kernels(GpuTable& table) {
  add_compiled<ColumnKernels>(table);
}

}  // namespace atl::ops::cuda
