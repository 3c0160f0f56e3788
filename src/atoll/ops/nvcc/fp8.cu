#include "atoll/ops/cuda/fp8.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_fp8_kernels(GpuTable& table) {
  add_compiled<Fp8Kernels>(table);
}

}  // namespace atl::ops::cuda
