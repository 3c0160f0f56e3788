#pragma once

// Why a machine's GPUs cannot be used, in words that say what to do. Pure functions: no driver is
// needed to test them.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace atl {

/// What the CUDA runtime says of a machine. Versions are as CUDA counts them: 13000 is 13.0.
struct DriverFacts {
  int driver = 0;           ///< the CUDA version that the driver serves; 0: no driver is loaded
  int runtime = 0;          ///< the one that this atoll was built with
  int num_gpus = 0;         ///< that the driver sees
  std::string_view status;  ///< what the runtime answered, where it was no success
};

/// Why no GPU can be used, and what to do; empty: nothing is wrong.
std::string driver_problem(const DriverFacts& facts);

/// The lowest compute capability that kernels are compiled for: attention needs mma.sync of bf16.
constexpr int kLeastComputeCapability = 80;

/// Why the GPU of this compute capability (8 and 6 for 8.6) cannot be used, and what to do; empty:
/// it can.
std::string gpu_problem(std::string_view name, int major, int minor);

/// Why a GPU of this compute capability cannot multiply numbers of 8 bits, with one scale for a
/// matrix or `in_blocks`, and what to do; empty: it can (cuBLAS documentation, "cublasLtMatmul").
std::string fp8_problem(int major, int minor, bool in_blocks);

/// Of the GPU that this process has opened, as 8 and 6 for 8.6.
std::pair<int, int> compute_capability();

/// What is said when the hardware or its driver answers no more; `problem` is the runtime's words.
std::string lost_gpu_text(std::string_view problem);
/// When a kernel has failed, after which the runtime refuses this process all else.
std::string failed_kernel_text(std::string_view problem);
/// When another process has the GPU to itself.
std::string busy_gpu_text(std::string_view problem);

/// gpu_problem of each GPU that probe_gpus() names.
std::vector<std::string> gpu_problems();

/// A number for each of these, not 0: processes of a machine that see the same GPU find the same,
/// whatever each counts it as.
std::vector<std::int64_t> gpu_identities();

/// Why GPU `index` cannot be used; empty: it can.
std::string why_no_gpu(int index);

}  // namespace atl
