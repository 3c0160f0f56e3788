#pragma once

#include <typeinfo>

namespace atl::ops::cuda {

/// The kernel that nvcc compiled for a struct of operands, as cudaLaunchKernel takes it; null in a
/// build without nvcc.
const void* gpu_kernel(const std::type_info& kernel);

}  // namespace atl::ops::cuda
