#include "atoll/ops/cuda/column_sum.h"

#include "atoll/ops/cuda/column_sum.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

Declined column_sum(Run& run, const ColumnSumArgs& args) {
  constexpr std::int64_t kLeastRows = 64;
  return serve_gpu_storage(run, args.dy.dtype(), [&]<typename T>(T) {
    const std::int64_t rows = args.dy.shape().num_rows(), width = args.dy.dim(-1);
    const RowBlocks cut = row_blocks(rows, kLeastRows);
    Run inner = run;
    const Tensor partials = inner.take_scratch({Dtype::kF32, {cut.count, width}});
    with_pack<kPack<T>>(width, {args.dy}, [&]<int V>(std::integral_constant<int, V>) {
      using Kernel = ColumnPartials<T, V, ColumnTerm::kPlain>;
      launch<ColumnKernels>(run,
                            {.blocks_x = static_cast<std::uint32_t>(num_blocks(width, 32 * V)),
                             .blocks_y = static_cast<std::uint32_t>(cut.count),
                             .threads = Kernel::kMaxThreads,
                             .shared_bytes = Kernel::shared_bytes()},
                            Kernel{.dy = input<T>(args.dy),
                                   .partials = output<float>(partials),
                                   .rows = rows,
                                   .width = width,
                                   .rows_per_block = cut.rows_per_block});
    });
    launch<ColumnKernels>(
        run, thread_a_pack(width, 1, AddPartials<true>::kMaxThreads),
        AddPartials<true>{input<float>(partials), output<float>(args.dbias), cut.count, width});
  });
}

}  // namespace atl::ops::cuda
