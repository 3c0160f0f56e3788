#include "atoll/ops/matmul/cuda_column_sum.h"

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/matmul/column_sum_kernels.cuh"

namespace atl::ops::cuda {

namespace {

void add_sums(Run& run, const Tensor& sums, const Tensor& dbias) {
  using Kernel = AddPartials<true>;
  launch<ColumnKernels>(run, add_partials_shape(sums.dim(1)),
                        Kernel{input<float>(sums), output<float>(dbias), sums.dim(0), sums.dim(1)});
}

}  // namespace

Declined column_sum(Run& run, const ColumnSumArgs& args) {
  return serve_gpu_storage(run, args.dy.dtype(), [&]<typename T>(T) {
    const std::int64_t rows = args.dy.shape().num_rows(), width = args.dy.dim(-1);
    const ColumnSumRows cut = column_sum_rows(rows);
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
    add_sums(run, partials, args.dbias);
  });
}

Declined add_column_sums(Run& run, const AddColumnSumsArgs& args) {
  if (args.sums.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] { add_sums(run, args.sums, args.dbias); });
}

}  // namespace atl::ops::cuda
