#include "atoll/ops/cuda/copy_blocks.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_copy_blocks_kernels(GpuTable& table) {
  add_compiled<CopyBlocksKernels>(table);
}

}  // namespace atl::ops::cuda
