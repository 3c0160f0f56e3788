#include "atoll/ops/cuda/routing.cuh"

#include "atoll/ops/nvcc/compiled.h"

namespace atl::ops::cuda {

void add_routing_kernels(GpuTable& table) {
  add_compiled<RoutingKernels>(table);
}

}  // namespace atl::ops::cuda
