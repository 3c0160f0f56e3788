#include "atoll/ops/block_diagonal/cuda.h"

#include "atoll/ops/block_diagonal/kernels.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

namespace {

// Calls each(number, block, its rows of the tall matrix) for every block.
template <typename Fn>
void for_each_block(std::span<const DiagonalBlock> blocks, const Tensor& tall, Fn&& each) {
  std::int64_t before = 0;
  for (std::size_t k = 0; k < blocks.size(); before += blocks[k++].rows) {
    each(static_cast<std::int64_t>(k), blocks[k], tall.rows(before, before + blocks[k].rows));
  }
}

}  // namespace

// A launch for each block: a fused Linear has three at most.
Declined block_diagonal(Run& run, double scale, Tensor x, std::span<const DiagonalBlock> blocks,
                        Tensor y) {
  return serve_gpu_storage(run, y.dtype(), [&]<typename T>(T) {
    const std::int64_t r = x.dim(1), size = y.dim(0) * r;
    if (size == 0) return;
    for_each_block(blocks, x, [&](std::int64_t k, const DiagonalBlock& block, const Tensor& rows) {
      using Kernel = SpreadBlock<T>;
      launch<BlockDiagonalKernels>(run, thread_a_pack(size, 1, Kernel::kMaxThreads),
                                   Kernel{input<T>(rows), output<T>(y), block.row_begin, block.rows,
                                          r, k * r, y.dim(1), size, static_cast<float>(scale)});
    });
  });
}

Declined block_diagonal_backward(Run& run, double scale, Tensor dy,
                                 std::span<const DiagonalBlock> blocks, Tensor dx) {
  if (dx.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    const std::int64_t r = dx.dim(1);
    for_each_block(blocks, dx, [&](std::int64_t k, const DiagonalBlock& block, const Tensor& rows) {
      if (rows.num_elements() == 0) return;
      launch<BlockDiagonalKernels>(
          run, thread_a_pack(rows.num_elements(), 1, GatherBlock::kMaxThreads),
          GatherBlock{input<float>(dy), output<float>(rows), block.row_begin, r, k * r, dy.dim(1),
                      static_cast<float>(scale)});
    });
  });
}

}  // namespace atl::ops::cuda
