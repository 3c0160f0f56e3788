#pragma once

// A choice that changes bits, as bf16_arithmetic.h is of a CPU.

#include <cstddef>
#include <string_view>

namespace atl::ops {

/// What carries out attention on a GPU.
enum class GpuAttention {
  kOwn,  ///< our own kernels
  /// cuDNN, and our own kernels for what it is not given: ops/attention/cuda_cudnn.h.
  /// attention_forward then needs attention_scratch_bytes of scratch too.
  kCudnn,
};

/// What this process does; our own kernels until set_gpu_attention says otherwise. It changes bits,
/// and what attention_scratch_bytes says: so it is set before memory is planned.
GpuAttention gpu_attention();
/// What a call of cuDNN may take for its workspace. 32 heads of 4096 rows want 1.14 GB for each
/// sequence; twice the rows would take four times that.
constexpr std::size_t kMostWorkspaceBytes = std::size_t{1280} << 20;
std::size_t most_workspace_bytes();
void set_gpu_attention(GpuAttention attention,
                       std::size_t most_workspace_bytes = kMostWorkspaceBytes);

/// The one of this name, "own" or "cudnn". Throws Error(kInternal) for another.
GpuAttention gpu_attention_named(std::string_view name);

}  // namespace atl::ops
