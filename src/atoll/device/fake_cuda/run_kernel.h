#pragma once

#include "atoll/base/threads/thread_pool.h"
#include "atoll/device/fake_cuda/block.h"

namespace atl::fake_cuda {

/// Throws Error(kInternal) when no GPU has such a launch: threads, blocks or shared memory.
void check_launch(const cuda::KernelCode& code, const cuda::LaunchShape& shape);

/// Runs a kernel on the host, its blocks shared out among `threads`, in an order of blocks and of
/// threads in them that `order` decides. Returns what it read and wrote. Throws Error(kInternal) as
/// Block::run does, of the first block in that order that failed.
Traffic run_kernel(ThreadPool& threads, const cuda::KernelCode& code,
                   const cuda::LaunchShape& shape, const void* operands, Order order,
                   Checks checks = {});

/// The code of a kernel for the shim alone.
template <typename Kernel>
cuda::KernelCode shim_code() {
  return {.name = Kernel::kName,
          .shim = [](const void* operands) { (*static_cast<const Kernel*>(operands))(); }};
}

/// run_kernel for a struct of operands.
template <typename Kernel>
Traffic run_kernel(ThreadPool& threads, const cuda::LaunchShape& shape, const Kernel& kernel,
                   Order order, Checks checks = {}) {
  return run_kernel(threads, shim_code<Kernel>(), shape, &kernel, order, checks);
}

}  // namespace atl::fake_cuda
