#include "atoll/ops/cuda/gpu_kernels.h"

#include "atoll/ops/nvcc/gpu_table.h"

namespace atl::ops::cuda {

const void* gpu_kernel(const std::type_info& kernel) {
  static const GpuTable table = [] {
    GpuTable all;
    add_all_kernels(all);
    return all;
  }();
  const auto found = table.find(kernel);
  return found == table.end() ? nullptr : found->second;
}

}  // namespace atl::ops::cuda
