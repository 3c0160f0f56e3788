#include "atoll/ops/cuda/attention_mma.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_attention_mma_kernels(GpuTable& table) {
  add_compiled<AttentionMmaKernels>(table);
}

}  // namespace atl::ops::cuda
