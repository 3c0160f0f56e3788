#include "atoll/ops/cuda/sample_token.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_sample_token_kernels(GpuTable& table) {
  add_compiled<SampleTokenKernels>(table);
}

}  // namespace atl::ops::cuda
