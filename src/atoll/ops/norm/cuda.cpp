#include "atoll/ops/norm/cuda.h"

#include <algorithm>

#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/matmul/column_sum_kernels.cuh"
#include "atoll/ops/norm/kernels.cuh"
#include "atoll/ops/norm/wide_kernels.cuh"

namespace atl::ops::cuda {

namespace {

// Of the weight gradient of heads: below this many rows a block's sums are not worth a block.
constexpr std::int64_t kLeastRows = 16;

RowBlocks norm_rows(std::int64_t rows) {
  return row_blocks(rows, 32, 256);
}

// Rows that a team goes through in forward, so that it reads the weight once for all of them: a
// few, while there are blocks for all of a GPU.
std::int64_t rows_of_a_team(std::int64_t rows, const RowTeams& teams) {
  return std::clamp<std::int64_t>(rows / (teams.count * 1024), 1, 4);
}

/// Calls on_team(std::integral_constant<int, V>) where teams can hold rows of all operands, else
/// alone(std::integral_constant<int, V>) with V elements at once, or 1.
template <typename T, typename OnTeam, typename Alone>
void with_teams(std::int64_t width, std::initializer_list<Tensor> operands, OnTeam&& on_team,
                Alone&& alone) {
  with_pack<kPack<T>>(width, operands, [&]<int V>(std::integral_constant<int, V> pack) {
    if constexpr (V > 1) {
      if (fits_row_team(width, V)) return on_team(pack);
    }
    alone(pack);
  });
}

struct Forward {
  RmsScale scale;
  Tensor x, weight, bias, y, mean, rstd;

  template <typename T, int V, bool kLayer>
  void on_team(Run& run) const {
    using Kernel = NormForward<T, V, kLayer>;
    const std::int64_t rows = x.shape().num_rows();
    const RowTeams teams = row_teams(x.dim(-1), V);
    const std::int64_t each = rows_of_a_team(rows, teams) * teams.count;
    launch<NormKernels>(
        run,
        {.blocks_x = static_cast<std::uint32_t>(num_blocks(rows, each)),
         .threads = static_cast<std::uint32_t>(teams.threads()),
         .shared_bytes = static_cast<std::uint32_t>(Kernel::Sums::shared_bytes(teams.threads()))},
        Kernel{input<T>(x), input<T>(weight), input<T>(bias), output<T>(y), output<float>(mean),
               output<float>(rstd), rows, x.dim(-1), each, teams.team_threads,
               static_cast<float>(scale.eps), static_cast<float>(scale.weight_offset)});
  }
  template <typename T, int V, bool kLayer>
  void alone(Run& run) const {
    using Kernel = WideNormForward<T, V, kLayer>;
    const std::int64_t rows = x.shape().num_rows();
    launch<WideNormKernels>(
        run, warp_a_row(rows, Kernel::kMaxThreads),
        Kernel{input<T>(x), input<T>(weight), input<T>(bias), output<T>(y), output<float>(mean),
               output<float>(rstd), rows, x.dim(-1), static_cast<float>(scale.eps),
               static_cast<float>(scale.weight_offset)});
  }
};

struct Backward {
  RmsScale scale;
  Tensor x, weight, mean, rstd, dy, dresidual, dx, sums;

  template <typename T, int V, bool kLayer>
  void on_team(Run& run) const {
    using Kernel = NormBackward<T, V, kLayer>;
    const std::int64_t rows = x.shape().num_rows();
    const RowBlocks cut = norm_rows(rows);
    const RowTeams teams = row_teams(x.dim(-1), V);
    launch<NormKernels>(
        run,
        {.blocks_x = static_cast<std::uint32_t>(cut.count),
         .threads = static_cast<std::uint32_t>(teams.threads()),
         .shared_bytes = static_cast<std::uint32_t>(Kernel::shared_bytes_of(teams.threads()))},
        Kernel{input<T>(x), input<T>(weight), input<float>(mean), input<float>(rstd), input<T>(dy),
               input<T>(dresidual), output<T>(dx), output<float>(sums), rows, x.dim(-1),
               cut.rows_per_block, teams.team_threads, static_cast<float>(scale.weight_offset)});
  }
  template <typename T, int V, bool kLayer>
  void alone(Run& run) const {
    const std::int64_t rows = x.shape().num_rows(), width = x.dim(-1);
    if (sums.defined()) {  // first: dx may be dy
      using Partials = ColumnPartials<T, V, kLayer ? ColumnTerm::kLayer : ColumnTerm::kRms>;
      const RowBlocks cut = norm_rows(rows);
      launch<ColumnKernels>(
          run,
          {.blocks_x = static_cast<std::uint32_t>(num_blocks(width, 32 * V)),
           .blocks_y = static_cast<std::uint32_t>(cut.count),
           .threads = Partials::kMaxThreads,
           .shared_bytes = Partials::shared_bytes()},
          Partials{input<T>(dy), input<T>(x), input<float>(mean), input<float>(rstd),
                   output<float>(sums), rows, width, cut.rows_per_block});
    }
    using Kernel = WideNormBackward<T, V, kLayer>;
    launch<WideNormKernels>(
        run, warp_a_row(rows, Kernel::kMaxThreads),
        Kernel{input<T>(x), input<T>(weight), input<float>(mean), input<float>(rstd), input<T>(dy),
               input<T>(dresidual), output<T>(dx), rows, width,
               static_cast<float>(scale.weight_offset)});
  }
};

// Runs what serves operands of T, of `kLayer` or not.
template <typename T, bool kLayer, typename Norm>
void run_norm(Run& run, const Norm& norm, std::initializer_list<Tensor> operands) {
  with_teams<T>(
      norm.x.dim(-1), operands,
      [&]<int V>(std::integral_constant<int, V>) { norm.template on_team<T, V, kLayer>(run); },
      [&]<int V>(std::integral_constant<int, V>) { norm.template alone<T, V, kLayer>(run); });
}

void add_partials(Run& run, Tensor partials, std::int64_t offset, std::int64_t blocks,
                  std::int64_t stride, Tensor total) {
  Global<const float> from = input<float>(partials);
  from.data += offset;
  from.size -= offset;
  launch<ColumnKernels>(run, add_partials_shape(total.num_elements()),
                        AddPartials<true>{from, output<float>(total), blocks, stride});
}

}  // namespace

std::int64_t norm_row_blocks(std::int64_t rows) {
  return norm_rows(rows).count;
}

Declined norm_forward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor bias,
                      Tensor y, Tensor mean, Tensor rstd) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    if (x.num_elements() == 0) return;
    const Forward norm = {scale, x, weight, bias, y, mean, rstd};
    const Tensor shift = bias.defined() ? bias : weight;
    mean.defined() ? run_norm<T, true>(run, norm, {x, weight, shift, y})
                   : run_norm<T, false>(run, norm, {x, weight, shift, y});
  });
}

Declined norm_backward(Run& run, const RmsScale& scale, Tensor x, Tensor weight, Tensor mean,
                       Tensor rstd, Tensor dy, Tensor dresidual, Tensor dx, Tensor sums) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    if (x.num_elements() == 0) return;
    const Backward norm = {scale, x, weight, mean, rstd, dy, dresidual, dx, sums};
    const Tensor past = dresidual.defined() ? dresidual : x;
    mean.defined() ? run_norm<T, true>(run, norm, {x, weight, dy, past, dx})
                   : run_norm<T, false>(run, norm, {x, weight, dy, past, dx});
  });
}

Declined add_norm_sums(Run& run, std::int64_t rows, Tensor sums, Tensor dweight, Tensor dbias) {
  if (sums.dtype() != Dtype::kF32) return "not f32";
  return serve_gpu(run, [&] {
    const std::int64_t width = dweight.num_elements(), stride = sums.dim(1) * width;
    if (rows == 0 || width == 0) return;
    add_partials(run, sums, 0, norm_row_blocks(rows), stride, dweight);
    if (dbias.defined()) add_partials(run, sums, width, norm_row_blocks(rows), stride, dbias);
  });
}

Declined qk_norm_forward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                         Tensor q_weight, Tensor k_weight, Tensor y, Tensor rstd) {
  return serve_gpu_storage(run, x.dtype(), [&]<typename T>(T) {
    using Kernel = QkNormForward<T>;
    const std::int64_t rows = x.shape().num_rows();
    if (rows == 0) return;
    launch<QkNormKernels>(
        run, warp_a_row(rows * (heads.num_heads + 2 * heads.num_kv_heads), Kernel::kMaxThreads),
        Kernel{input<T>(x), input<T>(q_weight), input<T>(k_weight), output<T>(y),
               output<float>(rstd), rows, static_cast<int>(heads.num_heads),
               static_cast<int>(heads.num_kv_heads), static_cast<int>(heads.head_dim),
               static_cast<float>(scale.eps), static_cast<float>(scale.weight_offset)});
  });
}

Declined qk_norm_backward(Run& run, const HeadLayout& heads, const RmsScale& scale, Tensor x,
                          Tensor q_weight, Tensor k_weight, Tensor rstd, Tensor dy, Tensor dx,
                          Tensor dweights) {
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
    launch<ColumnKernels>(run, add_partials_shape(2 * heads.head_dim),
                          AddPartials<false>{input<float>(partials), output<float>(dweights),
                                             cut.count, 2 * heads.head_dim});
    launch<QkNormKernels>(
        run, warp_a_row(rows * (heads.num_heads + 2 * heads.num_kv_heads), Kernel::kMaxThreads),
        Kernel{input<T>(x), input<T>(q_weight), input<T>(k_weight), input<float>(rstd),
               input<T>(dy), output<T>(dx), rows, num_heads, num_kv_heads, head_dim,
               static_cast<float>(scale.weight_offset)});
  });
}

}  // namespace atl::ops::cuda
