#include "atoll/ops/cuda/codes.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_codes_kernels(GpuTable& table) {
  add_compiled<CodesKernels>(table);
}

}  // namespace atl::ops::cuda
