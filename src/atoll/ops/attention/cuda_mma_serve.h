#pragma once

// When kernels with tensor cores can serve, and how they are launched.

#include "atoll/ops/attention/attention.h"
#include "atoll/ops/attention/mma_kernels.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

/// Calls fn(std::integral_constant<int, kDim>) with what heads are padded to, or says why not.
template <typename Fn>
Declined serve_mma(const Run& run, const HeadLayout& heads, AttentionScores scores,
                   std::initializer_list<Tensor> operands, Fn&& fn) {
  if (heads.head_dim > 128 || heads.head_dim % kChunk != 0) {
    return "head_dim is not a multiple of 8 up to 128";
  }
  if (scores.softcap != 0) return "a soft cap";
  if (!(scores.scale > 0)) return "a scale that is not above 0";
  for (const Tensor& operand : operands) {
    if (operand.dtype() != Dtype::kBf16) return "not bf16";
    if (reinterpret_cast<std::uintptr_t>(operand.raw()) % 16 != 0) return "not aligned to 16 bytes";
  }
  return serve_gpu(run, [&] {
    heads.head_dim <= 64 ? fn(std::integral_constant<int, 64>{})
                         : fn(std::integral_constant<int, 128>{});
  });
}

/// A block for each tile of the rows of each of `num_heads` heads.
template <typename Kernel>
void launch_tiles(Run& run, std::int64_t num_heads, std::int64_t rows, const Kernel& kernel) {
  const std::int64_t blocks = num_heads * num_blocks(rows, Kernel::kRows);
  if (blocks == 0) return;
  launch<AttentionMmaKernels>(run,
                              {.blocks_x = static_cast<std::uint32_t>(blocks),
                               .threads = Kernel::kMaxThreads,
                               .shared_bytes = Kernel::shared_bytes()},
                              kernel);
}

}  // namespace atl::ops::cuda
