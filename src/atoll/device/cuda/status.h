#pragma once

// The CUDA runtime's return codes as errors.

#include <cuda_runtime_api.h>
#include <string_view>

namespace atl::cuda {

/// Throws Error(kResource) when `status` is not success, DeviceLostError where no later call can
/// succeed; `what` says what was being done.
void check(cudaError_t status, std::string_view what);

/// Throws DeviceLostError when no later call can succeed: for whoever has an error of a library,
/// which does not say. Does not wait.
void check_not_lost(std::string_view what);

}  // namespace atl::cuda
