#include "atoll/ops/cuda/norm.h"

#include "atoll/ops/cuda/column_sum.cuh"
#include "atoll/ops/cuda/norm.cuh"
#include "atoll/ops/cuda/serve.h"

namespace atl::ops::cuda {

namespace {

// Below this many rows a block's sums are not worth a block.
constexpr std::int64_t kLeastRows = 16;

template <typename T, int V, bool kLayer>
void forward(Run& run, double eps, Tensor x, Tensor weight, Tensor bias, Tensor y, Tensor mean,
             Tensor rstd) {
  using Kernel = NormForward<T, V, kLayer>;
  const std::int64_t rows = x.shape().num_rows();
  launch<NormKernels>(
      run, warp_a_row(rows, Kernel::kMaxThreads),
      Kernel{input<T>(x), input<T>(weight), input<T>(bias), output<T>(y), output<float>(mean),
             output<float>(rstd), rows, x.dim(-1), static_cast<float>(eps)});
}

template <typename T, int V, bool kLayer>
void backward_input(Run& run, Tensor x, Tensor weight, Tensor mean, Tensor rstd, Tensor dy,
                    Tensor dx) {
  using Kernel = NormBackwardInput<T, V, kLayer>;
  const std::int64_t rows = x.shape().num_rows();
  launch<NormKernels>(run, warp_a_row(rows, Kernel::kMaxThreads),
                      Kernel{input<T>(x), input<T>(weight), input<float>(mean), input<float>(rstd),
                             input<T>(dy), output<T>(dx), rows, x.dim(-1)});
}

void add_partials(Run& run, Tensor partials, std::int64_t offset, std::int64_t blocks,
                  std::int64_t stride, Tensor total) {
  Global<const float> from = input<float>(partials);
  from.data += offset;
  from.size -= offset;
  launch<ColumnKernels>(run, thread_a_pack(total.num_elements(), 1, AddPartials<true>::kMaxThreads),
                        AddPartials<true>{from, output<float>(total), blocks, stride});
}

template <typename T, int V, ColumnTerm kTerm>
void backward_weight(Run& run, Tensor x, Tensor mean, Tensor rstd, Tensor dy, Tensor dweight,
                     Tensor dbias) {
  using Kernel = ColumnPartials<T, V, kTerm>;
  const std::int64_t rows = x.shape().num_rows(), width = x.dim(-1);
  const RowBlocks cut = row_blocks(rows, kLeastRows);
  Run inner = run;
  const Tensor partials = inner.take_scratch({Dtype::kF32, {cut.count, Kernel::kSums, width}});
  launch<ColumnKernels>(run,
                        {.blocks_x = static_cast<std::uint32_t>(num_blocks(width, 32 * V)),
                         .blocks_y = static_cast<std::uint32_t>(cut.count),
                         .threads = Kernel::kMaxThreads,
                         .shared_bytes = Kernel::shared_bytes()},
                        Kernel{input<T>(dy), input<T>(x), input<float>(mean), input<float>(rstd),
                               output<float>(partials), rows, width, cut.rows_per_block});
  add_partials(run, partials, 0, cut.count, Kernel::kSums * width, dweight);
  if (dbias.defined()) add_partials(run, partials, width, cut.count, 2 * width, dbias);
}

}  // namespace

Declined norm_forward(Run& run, double eps, Tensor x, Tensor weight, Tensor bias, Tensor y,
                      Tensor mean, Tensor rstd) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    if (x.num_elements() == 0) return;
    const Tensor shift = bias.defined() ? bias : weight;
    with_pack<kPack<T>>(
        x.dim(-1), {x, weight, shift, y}, [&]<int V>(std::integral_constant<int, V>) {
          mean.defined() ? forward<T, V, true>(run, eps, x, weight, bias, y, mean, rstd)
                         : forward<T, V, false>(run, eps, x, weight, bias, y, mean, rstd);
        });
  });
}

Declined norm_backward_input(Run& run, Tensor x, Tensor weight, Tensor mean, Tensor rstd, Tensor dy,
                             Tensor dx) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    if (x.num_elements() == 0) return;
    with_pack<kPack<T>>(x.dim(-1), {x, weight, dy, dx}, [&]<int V>(std::integral_constant<int, V>) {
      mean.defined() ? backward_input<T, V, true>(run, x, weight, mean, rstd, dy, dx)
                     : backward_input<T, V, false>(run, x, weight, mean, rstd, dy, dx);
    });
  });
}

Declined norm_backward_weight(Run& run, Tensor x, Tensor mean, Tensor rstd, Tensor dy,
                              Tensor dweight, Tensor dbias) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    if (x.num_elements() == 0) return;
    with_pack<kPack<T>>(x.dim(-1), {x, dy}, [&]<int V>(std::integral_constant<int, V>) {
      constexpr ColumnTerm kRms = ColumnTerm::kRms, kLayer = ColumnTerm::kLayer;
      mean.defined() ? backward_weight<T, V, kLayer>(run, x, mean, rstd, dy, dweight, dbias)
                     : backward_weight<T, V, kRms>(run, x, mean, rstd, dy, dweight, dbias);
    });
  });
}

Declined qk_norm_forward(Run& run, const HeadLayout& heads, double eps, Tensor x, Tensor q_weight,
                         Tensor k_weight, Tensor y, Tensor rstd) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    using Kernel = QkNormForward<T>;
    const std::int64_t rows = x.shape().num_rows();
    if (rows == 0) return;
    launch<QkNormKernels>(
        run, warp_a_row(rows * (heads.num_heads + 2 * heads.num_kv_heads), Kernel::kMaxThreads),
        Kernel{input<T>(x), input<T>(q_weight), input<T>(k_weight), output<T>(y),
               output<float>(rstd), rows, static_cast<int>(heads.num_heads),
               static_cast<int>(heads.num_kv_heads), static_cast<int>(heads.head_dim),
               static_cast<float>(eps)});
  });
}

Declined qk_norm_backward(Run& run, const HeadLayout& heads, Tensor x, Tensor q_weight,
                          Tensor k_weight, Tensor rstd, Tensor dy, Tensor dx, Tensor dweights) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    using Kernel = QkNormBackward<T>;
    using Partials = QkWeightPartials<T>;
    const std::int64_t rows = x.shape().num_rows();
    if (rows == 0) return run.stream->fill_zero(dweights.raw(), dweights.bytes());
    const auto num_heads = static_cast<int>(heads.num_heads);
    const auto num_kv_heads = static_cast<int>(heads.num_kv_heads);
    const auto head_dim = static_cast<int>(heads.head_dim);
    const RowBlocks cut = row_blocks(rows, kLeastRows);
    Run inner = run;
    const Tensor partials = inner.take_scratch({Dtype::kF32, {cut.count, 2, heads.head_dim}});
    // The weight first: dx may be dy.
    launch<ColumnKernels>(
        run,
        {.blocks_x = 2,
         .blocks_y = static_cast<std::uint32_t>(cut.count),
         .threads = Partials::kMaxThreads,
         .shared_bytes = Partials::kMaxThreads * sizeof(float)},
        Partials{input<T>(x), input<float>(rstd), input<T>(dy), output<float>(partials), rows,
                 cut.rows_per_block, num_heads, num_kv_heads, head_dim});
    launch<ColumnKernels>(run,
                          thread_a_pack(2 * heads.head_dim, 1, AddPartials<false>::kMaxThreads),
                          AddPartials<false>{input<float>(partials), output<float>(dweights),
                                             cut.count, 2 * heads.head_dim});
    launch<QkNormKernels>(
        run, warp_a_row(rows * (heads.num_heads + 2 * heads.num_kv_heads), Kernel::kMaxThreads),
        Kernel{input<T>(x), input<T>(q_weight), input<T>(k_weight), input<float>(rstd),
               input<T>(dy), output<T>(dx), rows, num_heads, num_kv_heads, head_dim});
  });
}

}  // namespace atl::ops::cuda
