#pragma once

#include "atoll/device/cuda/kernel.h"
#include "atoll/ops/nvcc/gpu_table.h"

namespace atl::ops::cuda {

/// Makes nvcc compile the kernels of `List`, and adds them. For .cu files alone.
template <typename List>
void add_compiled(GpuTable& table) {
  List::for_each([&]<typename Kernel>(std::type_identity<Kernel>) {
    table.emplace(typeid(Kernel), reinterpret_cast<const void*>(&atl::cuda::run_kernel<Kernel>));
  });
}

}  // namespace atl::ops::cuda
