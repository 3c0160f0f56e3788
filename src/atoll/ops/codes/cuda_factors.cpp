#include "atoll/ops/codes/cuda_factors.h"

#include "atoll/ops/codes/factors_kernels.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

namespace {

FactorOperands operands(const Factors& a) {
  return {.matrices = input<std::int64_t>(a.matrices),
          .m = output<float>(a.m),
          .p = output<float>(a.p),
          .q = output<float>(a.q),
          .residual = output<float>(a.residual),
          .rank = a.rank,
          .m_first = a.m_first};
}

constexpr std::int64_t kMostMatrices = 65535;  // rows of blocks that a GPU takes at a time

// So many items of a block at most, of each matrix.
template <typename Kernel>
Declined launch_matrices(Run& run, const Factors& a, std::int64_t items, std::int64_t of_block,
                         const Kernel& kernel, std::uint32_t shared_bytes = 0) {
  if (a.matrices.dim(0) > kMostMatrices) return "more than 65,535 matrices";
  return serve_gpu(run, [&] {
    if (a.matrices.dim(0) == 0) return;
    launch<FactorsKernels>(run,
                           {.blocks_x = static_cast<std::uint32_t>(num_blocks(items, of_block)),
                            .blocks_y = static_cast<std::uint32_t>(a.matrices.dim(0)),
                            .threads = Kernel::kMaxThreads,
                            .shared_bytes = shared_bytes},
                           kernel);
  });
}

constexpr std::int64_t kWarps = 8;  // of blocks in which a warp has rows or elements

}  // namespace

Declined project_rows(Run& run, const Factors& a) {
  return launch_matrices(run, a, a.most_rows, kWarps * ProjectRows::kRows, ProjectRows{operands(a)},
                         ProjectRows::shared_bytes());
}

Declined project_columns(Run& run, const Factors& a, const Tensor& flags) {
  return launch_matrices(run, a, a.most_cols, ProjectColumns::kColumns,
                         ProjectColumns{operands(a), input<std::int32_t>(flags)},
                         static_cast<std::uint32_t>(ProjectColumns::shared_bytes(a.rank)));
}

Declined keep_residual(Run& run, const Factors& a, const Tensor& flags) {
  return launch_matrices(run, a, a.most_elements, kWarps * kCodeBlock,
                         OweRest{operands(a), input<std::int32_t>(flags)});
}

Declined restore_product(Run& run, const Factors& a, const Tensor& flags) {
  return launch_matrices(run, a,
                         RestoreProduct::most_tiles(a.most_rows, a.most_cols, a.most_elements), 1,
                         RestoreProduct{operands(a), input<std::int32_t>(flags)});
}

Declined orthogonalise(Run& run, const Orthogonalise& a) {
  return serve_gpu(run, [&] {
    if (a.matrices.dim(0) == 0) return;
    launch<FactorsKernels>(run,
                           {.blocks_x = static_cast<std::uint32_t>(a.matrices.dim(0)),
                            .threads = OrthogonaliseKernel::kMaxThreads,
                            .shared_bytes = OrthogonaliseKernel::kSharedBytes},
                           OrthogonaliseKernel{.matrices = input<std::int64_t>(a.matrices),
                                               .from = input<float>(a.from),
                                               .to = output<float>(a.to),
                                               .given = input<std::int32_t>(a.given),
                                               .made = output<std::int32_t>(a.made),
                                               .rank = a.rank,
                                               .at_column = static_cast<std::int32_t>(a.at),
                                               .n_column = static_cast<std::int32_t>(a.n)});
  });
}

}  // namespace atl::ops::cuda
