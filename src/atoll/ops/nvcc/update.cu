#include "atoll/ops/cuda/update.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_update_kernels(GpuTable& table) {
  add_compiled<UpdateKernels>(table);
}

}  // namespace atl::ops::cuda
