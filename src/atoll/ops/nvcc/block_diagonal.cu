#include "atoll/ops/cuda/block_diagonal.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_block_diagonal_kernels(GpuTable& table) {
  add_compiled<BlockDiagonalKernels>(table);
}

}  // namespace atl::ops::cuda
