#include "atoll/ops/cuda/signs.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_signs_kernels(GpuTable& table) {
  add_compiled<SignsKernels>(table);
}

}  // namespace atl::ops::cuda
