#include "atoll/ops/cuda/narrow_weights.h"

#include <algorithm>

#include "atoll/ops/copy_blocks.h"
#include "atoll/ops/cuda/narrow_weights.cuh"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/elementwise.h"
#include "atoll/ops/matmul.h"

namespace atl::ops::cuda {

namespace {

static_assert(kScaleGroup == kInt8Group);

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.raw()) % 16 == 0;
}

template <typename W, int V, int M>
void launch_few_rows(Run& run, const Tensor& x, const Tensor& w, const Tensor& scales,
                     const Tensor& y, const Tensor& bias) {
  using Kernel = FewRows<W, V, M>;
  const std::int64_t n = w.dim(0);
  launch<NarrowWeightsKernels>(
      run, warp_a_row(num_blocks(n, Kernel::kColumns), Kernel::kMaxThreads),
      Kernel{input<float>(x), input<W>(w), input<float>(scales), input<float>(bias),
             output<float>(y), x.shape().num_rows(), n, w.dim(1)});
}

template <typename W>
void few_rows(Run& run, const Tensor& x, const Tensor& w, const Tensor& scales, const Tensor& y,
              const Tensor& bias) {
  constexpr int kWide = kPack<W>;
  const bool is_one = x.shape().num_rows() == 1;
  if (w.dim(1) % kWide == 0 && is_aligned(w) && is_aligned(x)) {
    is_one ? launch_few_rows<W, kWide, 1>(run, x, w, scales, y, bias)
           : launch_few_rows<W, kWide, kFewRows>(run, x, w, scales, y, bias);
  } else {
    is_one ? launch_few_rows<W, 1, 1>(run, x, w, scales, y, bias)
           : launch_few_rows<W, 1, kFewRows>(run, x, w, scales, y, bias);
  }
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
void launch_rounded(Run& run, const Int8Matrix& x, const Int8Matrix& w, const Tensor& y,
                    const Tensor& bias) {
  using Kernel = RoundedRows<V>;
  const std::int64_t rows = x.values.dim(0), n = w.values.dim(0);
  LaunchShape shape = warp_a_row(n, Kernel::kMaxThreads);
  shape.blocks_y = static_cast<std::uint32_t>(num_blocks(rows, Kernel::kRows));
  launch<NarrowWeightsKernels>(
      run, shape,
      Kernel{input<std::uint8_t>(x.values), input<float>(x.scales), input<std::uint8_t>(w.values),
             input<float>(w.scales), input<float>(bias), output<float>(y), rows, n, w.values.dim(1),
             w.scales.dim(1)});
}

}  // namespace

Declined matmul_int8(Run& run, Tensor x, const Int8Matrix& w, Tensor y, Tensor bias) {
  return serve_gpu(run, [&] {
    if (x.shape().num_rows() <= kFewRows) {
      return few_rows<std::uint8_t>(run, x, w.values, w.scales, y, bias);
    }
    widened_product(run, x, w.values.shape(), y, bias,
                    [&](Run& inner, std::int64_t begin, std::int64_t end, const Tensor& out) {
                      int8_rows(inner, {}, w, begin, end - begin, out);
                    });
  });
}

Declined matmul_rounded(Run& run, Tensor x, const Int8Matrix& w, Tensor y, Tensor bias) {
  return serve_gpu(run, [&] {
    Run inner = run;
    const Shape shape = {x.shape().num_rows(), w.values.dim(1)};
    const Int8Matrix rounded = {inner.take_scratch(int8_values_spec(shape)),
                                inner.take_scratch(int8_scales_spec(shape))};
    launch<NarrowWeightsKernels>(
        inner, warp_a_row(rounded.scales.num_elements(), RoundGroups::kMaxThreads),
        RoundGroups{input<float>(x), output<std::uint8_t>(rounded.values),
                    output<float>(rounded.scales), shape.dim(1), rounded.scales.dim(1)});
    shape.dim(1) % 16 == 0 && is_aligned(w.values) ? launch_rounded<16>(inner, rounded, w, y, bias)
                                                   : launch_rounded<1>(inner, rounded, w, y, bias);
  });
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
      return few_rows<Bf16>(run, args.a.reshaped({args.shape.m, args.shape.k}), weights, {}, args.c,
                            args.bias);
    }
    widened_product(run, args.a, weights.shape(), args.c, args.bias,
                    [&](Run& inner, std::int64_t begin, std::int64_t end, const Tensor& out) {
                      convert(inner, weights.rows(begin, end), out);
                    });
  });
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
