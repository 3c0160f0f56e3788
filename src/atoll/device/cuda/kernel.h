#pragma once

// What kernels in .cuh files are written against. nvcc sees the GPU's own instructions behind these
// names; any other compiler sees the shim, which runs each GPU thread as a fiber, checks every
// access and every meeting of threads, and may run threads in any order.
//
// A kernel is a struct of operands with a call operator, which is what one thread does. With a
// kMinBlocks, so many blocks of kMaxThreads shall have registers on a multiprocessor: 1 gives a
// thread as many as it can use.
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
//   copy_async<N>(shared, i, global, j, is_there = true), commit_copies(), wait_copies<N>()
//     16 or 4 bytes; zeroes where is_there is false. Nobody may touch the place until the thread
//     that copies has waited, and a barrier has told the others.
//   load_matrices(m, shared, i), load_matrices_transposed(m, shared, i): four matrices of 8 x 8
//     16-bit elements; lane l gives the index of row l % 8 of matrix l / 8, and gets elements
//     2 (l % 4) and one more of row l / 4 of each; transposed: rows 2 (l % 4) and one more of
//     column l / 4
//   mma_m16n8k16(d, a, b0, b1): one product of tensor cores, bf16 operands and f32 sums
//   bf16_bits(x): those of the nearest bf16; NaN is 0x7fff.  pack_bf16(low, high): two in a word
//   pack_e4m3(low, high), pack_e5m2(low, high): the nearest numbers of 8 bits, of what is larger
//     than all the largest, of NaN 0x7f; two in the low bytes of a word
//   permute_bytes(x, y, selector): a word of bytes of x (0 to 3) and of y (4 to 7), which the
//     selector's lowest four hexadecimal digits name, the lowest byte's first
//   max_or_nan(a, b): the larger one, or NaN where one is
//   compute_again(word): what is computed from it later is computed then, not kept in registers
//   exp2_approximate(x): 2^x to 2 units in the last place, in bits that GPUs choose; for where
//     tensor cores choose bits anyway
//   add_atomic(global, i, v), min_atomic(global, i, v): of integers alone, in no order
//   ATOLL_UNROLL before a loop whose count is a constant
// All threads of a warp come to each of the warp's operations together.

#if defined(__CUDACC__)
#include "atoll/device/cuda/kernel_gpu.h"
#else
#include "atoll/device/fake_cuda/kernel_host.h"
#endif
