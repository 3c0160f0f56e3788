#pragma once

// What kernels in .cuh files are written against. nvcc sees the GPU's own instructions behind these
// names; any other compiler sees the shim, which runs each GPU thread as a fiber, checks every
// access and every meeting of threads, and may run threads in any order.
//
// A kernel is a struct of operands with a call operator, which is what one thread does:
//
//   template <typename T>
//   struct Scale {
//     static constexpr const char* kName = "scale";
//     static constexpr int kMaxThreads = 256;
//     Global<const T> x;
//     Global<T> y;
//     std::int64_t size;
//     ATOLL_DEVICE void operator()() const {
//       const std::int64_t i = std::int64_t{block_x()} * num_threads() + thread();
//       if (i < size) y.store(i, 2 * x.load(i));
//     }
//   };
//
// Both worlds have:
//   thread() num_threads() lane() warp() block_x() block_y() num_blocks_x()
//   sync_block() sync_warp()
//   shuffle_xor(value, mask)  shuffle(value, lane)  any_lane(bool)  ballot(bool)
//   Global<T>: memory of the device.  Shared<T>: memory of the block, of shared_memory<T>(...).
//     load(i), store(i, v); load<N>(i), store<N>(i, pack): N elements at once, aligned
//   copy_async<N>(shared, i, global, j), commit_copies(), wait_copies<N>()
//   mma_m16n8k16(d, a, b): one product of tensor cores, bf16 operands and f32 sums
//   add_atomic(global, i, v), min_atomic(global, i, v): of integers alone, in no order
// All threads of a warp come to each of the warp's operations together.

#if defined(__CUDACC__)
#include "atoll/device/cuda/kernel_gpu.h"
#else
#include "atoll/device/fake_cuda/kernel_host.h"
#endif
