#include "atoll/ops/cuda/rope.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_rope_kernels(GpuTable& table) {
  add_compiled<RopeKernels>(table);
}

}  // namespace atl::ops::cuda
