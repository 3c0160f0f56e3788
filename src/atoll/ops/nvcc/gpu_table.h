#pragma once

#include <typeindex>
#include <unordered_map>

namespace atl::ops::cuda {

/// From the struct of operands to what cudaLaunchKernel takes.
using GpuTable = std::unordered_map<std::type_index, const void*>;

/// Adds all kernels. Made by cmake/kernels.cmake from the lists in ops/<family>/*kernels.cuh.
void add_all_kernels(GpuTable& table);

}  // namespace atl::ops::cuda
