#include "atoll/ops/cuda/attention.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_attention_kernels(GpuTable& table) {
  add_compiled<AttentionKernels>(table);
}

}  // namespace atl::ops::cuda
