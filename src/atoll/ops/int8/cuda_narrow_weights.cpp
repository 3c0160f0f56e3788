#include "atoll/ops/int8/cuda_narrow_weights.h"

#include <algorithm>

#include "atoll/ops/copy_blocks/copy_blocks.h"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/int8/narrow_weights_kernels.cuh"
#include "atoll/ops/matmul/matmul.h"

namespace atl::ops::cuda {

namespace {

static_assert(kScaleGroup == kInt8Group);

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 == 0;
}

// A product, or one for each group of rows. `w` is the matrix or all of them, stacked.
struct Rows {
  Tensor x, w, scales, y, bias, offsets;

  std::int64_t groups() const { return offsets.defined() ? offsets.num_elements() - 1 : 1; }
  std::int64_t rows() const { return x.shape().num_rows(); }
  std::int64_t n() const { return w.dim(0) / groups(); }
  // A block for each kRows rows that a group may have.
  template <int kRows>
  std::uint32_t row_tiles() const {
    const std::int64_t tiles =
        offsets.defined() ? most_row_tiles<kRows>(rows(), groups()) : num_blocks(rows(), kRows);
    return static_cast<std::uint32_t>(tiles);
  }
};

// Of M rows of x at a time.
template <typename Kernel, typename W, int M>
void launch_few_rows(Run& run, const Rows& of) {
  LaunchShape shape = warp_a_row(num_blocks(of.n(), Kernel::kColumns), Kernel::kMaxThreads);
  if (of.offsets.defined()) shape.blocks_y = of.row_tiles<M>();
  launch<NarrowWeightsKernels>(
      run, shape,
      Kernel{input<float>(of.x), input<W>(of.w), input<float>(of.scales), input<float>(of.bias),
             output<float>(of.y), input<std::int32_t>(of.offsets), static_cast<int>(of.rows()),
             of.n(), of.w.dim(1)});
}

template <typename W, bool kGrouped>
void few_rows(Run& run, const Rows& of) {
  constexpr int kWide = kPack<W>;
  using Eight = EightRows<W, kGrouped>;
  const bool is_at_16_bytes = is_aligned(of.w) && is_aligned(of.x);
  const auto are_packs = [&](int pack) { return is_at_16_bytes && of.w.dim(1) % pack == 0; };
  if (of.rows() <= of.groups()) {  // one at the mean
    return are_packs(kWide) ? launch_few_rows<FewRows<W, kWide, 1, kGrouped>, W, 1>(run, of)
                            : launch_few_rows<FewRows<W, 1, 1, kGrouped>, W, 1>(run, of);
  }
  const bool is_wide = of.n() >= Eight::kColumns && of.w.dim(1) < Eight::kMostWeights;
  are_packs(Eight::kEach) && is_wide
      ? launch_few_rows<Eight, W, kFewRows>(run, of)
      : launch_few_rows<FewRows<W, 1, kFewRows, kGrouped>, W, kFewRows>(run, of);
}

template <typename W>
void few_rows(Run& run, const Rows& of) {
  of.offsets.defined() ? few_rows<W, true>(run, of) : few_rows<W, false>(run, of);
}

// Rows of w in f32: those of tokens, or `count` from row `first` on.
void int8_rows(Run& run, const Tensor& tokens, const Int8Matrix& w, std::int64_t first,
               std::int64_t count, const Tensor& y) {
  if (count == 0) return;
  const std::int64_t width = w.values.dim(1);
  with_pack<4>(width, {w.values, y}, [&]<int V>(std::integral_constant<int, V>) {
    using Kernel = Int8Rows<V>;
    launch<NarrowWeightsKernels>(
        run, warp_a_row(count, Kernel::kMaxThreads),
        Kernel{input<std::int32_t>(tokens), input<std::uint8_t>(w.values), input<float>(w.scales),
               output<float>(y), count, width, first});
  });
}

// Rows of w that are widened at a time: 4 MiB of f32, as on a CPU.
std::int64_t widened_rows(const Shape& w) {
  constexpr std::int64_t kElements = std::int64_t{1} << 20;
  return std::clamp<std::int64_t>(kElements / (w.dim(1) + 1), 1,
                                  std::max<std::int64_t>(w.dim(0), 1));
}

// A block of columns of y at a time; widen(run, begin, end, out) gives rows of weights in f32.
template <typename Widen>
void widened_product(const Run& run, const Tensor& x, const Shape& w, const Tensor& y,
                     const Tensor& bias, Widen&& widen) {
  const std::int64_t m = x.shape().num_rows(), n = w.dim(0), k = w.dim(1);
  const std::int64_t step = widened_rows(w);
  for (std::int64_t begin = 0; begin < n; begin += step) {
    const std::int64_t end = std::min(begin + step, n), width = end - begin;
    Run inner = run;
    const Tensor weights = inner.take_scratch({Dtype::kF32, {width, k}});
    const Tensor block =
        width == n ? y.reshaped({m, n}) : inner.take_scratch({Dtype::kF32, {m, width}});
    widen(inner, begin, end, weights);
    matmul(inner, Transpose::kNT, x.reshaped({m, k}), weights, block,
           bias.defined() ? bias.rows(begin, end) : Tensor());
    if (width == n) return;
    copy_blocks(inner, {m, 1}, width, block, {.outer = width}, y, {.offset = begin, .outer = n});
  }
}

template <int V>
void launch_rounded(Run& run, const Int8Matrix& x, const Rows& of) {
  using Kernel = RoundedRows<V>;
  LaunchShape shape = warp_a_row(of.n(), Kernel::kMaxThreads);
  shape.blocks_y = of.row_tiles<Kernel::kRows>();
  launch<NarrowWeightsKernels>(
      run, shape,
      Kernel{input<std::uint8_t>(x.values), input<float>(x.scales), input<std::uint8_t>(of.w),
             input<float>(of.scales), input<float>(of.bias), output<float>(of.y),
             input<std::int32_t>(of.offsets), static_cast<int>(of.rows()), of.n(), of.w.dim(1),
             of.scales.dim(1)});
}

void rounded_rows(Run& run, const Rows& of) {
  Run inner = run;
  const Shape shape = {of.rows(), of.w.dim(1)};
  const Int8Matrix rounded = {inner.take_scratch(int8_values_spec(shape)),
                              inner.take_scratch(int8_scales_spec(shape))};
  launch<NarrowWeightsKernels>(
      inner, warp_a_row(rounded.scales.num_elements(), RoundGroups::kMaxThreads),
      RoundGroups{input<float>(of.x), output<std::uint8_t>(rounded.values),
                  output<float>(rounded.scales), shape.dim(1), rounded.scales.dim(1)});
  shape.dim(1) % 16 == 0 && is_aligned(of.w) ? launch_rounded<16>(inner, rounded, of)
                                             : launch_rounded<1>(inner, rounded, of);
}

}  // namespace

Declined matmul_int8(Run& run, Tensor x, const Int8Matrix& w, Tensor y, Tensor bias) {
  return serve_gpu(run, [&] {
    if (x.shape().num_rows() <= kFewRows) {
      return few_rows<std::uint8_t>(run, {x, w.values, w.scales, y, bias, {}});
    }
    widened_product(run, x, w.values.shape(), y, bias,
                    [&](Run& inner, std::int64_t begin, std::int64_t end, const Tensor& out) {
                      int8_rows(inner, {}, w, begin, end - begin, out);
                    });
  });
}

Declined matmul_rounded(Run& run, Tensor x, const Int8Matrix& w, Tensor y, Tensor bias) {
  return serve_gpu(run, [&] { rounded_rows(run, {x, w.values, w.scales, y, bias, {}}); });
}

Declined matmul_bf16_weights(Run& run, const MatmulArgs& args) {
  const bool is_it = args.a.dtype() == Dtype::kF32 && args.b.dtype() == Dtype::kBf16 &&
                     args.c.dtype() == Dtype::kF32 && !args.accumulate &&
                     args.shape.transpose == Transpose::kNT && !args.residual.defined() &&
                     (!args.bias.defined() || args.bias.dtype() == Dtype::kF32);
  if (!is_it) return "not f32 by bf16 weights";
  return serve_gpu(run, [&] {
    const Tensor weights = args.b.reshaped({args.shape.n, args.shape.k});
    if (args.shape.m <= kFewRows) {
      return few_rows<Bf16>(
          run, {args.a.reshaped({args.shape.m, args.shape.k}), weights, {}, args.c, args.bias, {}});
    }
    widened_product(run, args.a, weights.shape(), args.c, args.bias,
                    [&](Run& inner, std::int64_t begin, std::int64_t end, const Tensor& out) {
                      convert(inner, weights.rows(begin, end), out);
                    });
  });
}

void grouped_few_rows(Run& run, Tensor a, Tensor w, Tensor offsets, Tensor c) {
  few_rows<Bf16>(run, {a, w, {}, c, {}, offsets});
}

void grouped_few_rows(Run& run, Tensor a, const Int8Matrix& w, Tensor offsets, Tensor c) {
  few_rows<std::uint8_t>(run, {a, w.values, w.scales, c, {}, offsets});
}

void grouped_rounded(Run& run, Tensor a, const Int8Matrix& w, Tensor offsets, Tensor c) {
  rounded_rows(run, {a, w.values, w.scales, c, {}, offsets});
}

Declined embedding_int8(Run& run, Tensor tokens, const Int8Matrix& table, Tensor y) {
  return serve_gpu(run, [&] { int8_rows(run, tokens, table, 0, tokens.num_elements(), y); });
}

std::size_t narrow_weights_scratch_bytes(std::int64_t m, const Shape& w) {
  const std::size_t rounded = align_up(int8_values_spec({m, w.dim(1)}).bytes()) +
                              align_up(int8_scales_spec({m, w.dim(1)}).bytes());
  if (m <= kFewRows) return rounded;
  const std::int64_t rows = widened_rows(w);
  const Spec weights = {Dtype::kF32, {rows, w.dim(1)}};
  return std::max(rounded,
                  align_up(weights.bytes()) + align_up(Spec{Dtype::kF32, {m, rows}}.bytes()) +
                      matmul_scratch_bytes(Transpose::kNT, {Dtype::kF32, {m, w.dim(1)}}, weights));
}

}  // namespace atl::ops::cuda
