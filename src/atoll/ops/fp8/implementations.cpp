#include "atoll/ops/fp8/fp8.h"

#include <algorithm>
#include <vector>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/fp8/args.h"
#include "atoll/ops/fp8/cuda.h"
#include "atoll/ops/fp8/ref.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

constexpr Implementation<RoundToFp8Args> kRound[] = {
    {"cuda", cuda::round_to_fp8},
    {"ref",
     [](Run& run, const RoundToFp8Args& a) {
       return serve_host(run, [&] { ref::round_to_fp8(run.threads(), a); });
     }},
};
// In f32, by the fastest product that there is. A CPU's use of 8 bits is to look at losses: what it
// takes for copies is not planned.
Declined multiply_widened(Run& run, const MatmulFp8Args& args) {
  return serve_host(run, [&] {
    std::vector<float> a = ref::numbers_of(run.threads(), args.a),
                       b = ref::numbers_of(run.threads(), args.b);
    const Tensor left(a.data(), {Dtype::kF32, {args.m, args.k}});
    const Tensor right(b.data(), {Dtype::kF32, {args.n, args.k}});
    const std::size_t bytes =
        std::max<std::size_t>(matmul_scratch_bytes(Transpose::kNT, left.spec(), right.spec()), 1);
    const Buffer scratch(run.stream->device(), bytes);
    Run inner = run;
    inner.profile = nullptr;
    inner.scratch = {static_cast<std::byte*>(scratch.data()), bytes};
    std::vector<float> bias = ref::widened_bias<float>(args.bias);
    const Tensor offset =
        bias.empty() ? Tensor() : Tensor(bias.data(), {Dtype::kF32, {std::ssize(bias)}});
    matmul(inner, Transpose::kNT, left, right, args.c, offset, args.accumulate);
    if (args.residual.defined()) add(inner, args.residual, args.c, args.c);
  });
}

constexpr Implementation<MatmulFp8Args> kMatmul[] = {
    {"cuda", cuda::matmul_fp8},
    {"widened", multiply_widened},
    {"ref",
     [](Run& run, const MatmulFp8Args& a) {
       return serve_host(run, [&] { ref::matmul_fp8(run.threads(), a); });
     }},
};

void check_dims(const char* op, std::int64_t a, std::int64_t b) {
  ATOLL_CHECK(a % kFp8Multiple == 0 && b % kFp8Multiple == 0, "{}: a matrix of {} x {}", op, a, b);
}

void check_matrix(const char* op, const Fp8Matrix& matrix) {
  ATOLL_CHECK(matrix.codes.shape().rank() == 2, "{}: codes {}", op,
              matrix.codes.spec().to_string());
  const std::int64_t outer = matrix.codes.dim(0), k = matrix.codes.dim(1);
  check_dims(op, outer, k);
  check_size(op, Dtype::kU8, outer * k, {matrix.codes});
  check_spec(op, fp8_scales_spec(matrix.tile, outer, k), {matrix.scales});
}

/// An operand of `outer` rows of k: room for it, and what x is rounded to.
Fp8Matrix rounded(Run& run, Fp8Format format, Fp8Tile tile, const Tensor& x, bool transposed) {
  const std::int64_t rows = x.shape().num_rows(), cols = x.dim(-1);
  const std::int64_t outer = transposed ? cols : rows, k = transposed ? rows : cols;
  const Fp8Matrix matrix = {format, tile, run.take_scratch({Dtype::kU8, {outer, k}}),
                            run.take_scratch(fp8_scales_spec(tile, outer, k))};
  round_to_fp8(run, x, transposed, matrix);
  return matrix;
}

Fp8Tile activations(Fp8Scaling scaling) {
  return scaling == Fp8Scaling::kTensor ? Fp8Tile::kTensor : Fp8Tile::kRow;
}
Fp8Tile weights(Fp8Scaling scaling) {
  return scaling == Fp8Scaling::kTensor ? Fp8Tile::kTensor : Fp8Tile::kBlock;
}
Fp8Format gradients(Fp8Scaling scaling) {
  return scaling == Fp8Scaling::kTensor ? Fp8Format::kE5M2 : Fp8Format::kE4M3;
}

std::size_t matrix_bytes(std::int64_t outer, std::int64_t k) {
  std::size_t scales = 0;
  for (const Fp8Tile tile : {Fp8Tile::kTensor, Fp8Tile::kRow, Fp8Tile::kBlock}) {
    scales = std::max(scales, align_up(fp8_scales_spec(tile, outer, k).bytes()));
  }
  return align_up(static_cast<std::size_t>(outer * k)) + scales;
}

}  // namespace

std::int64_t Fp8Matrix::scale_at(std::int64_t i, std::int64_t j) const {
  if (tile == Fp8Tile::kTensor) return 0;
  if (tile == Fp8Tile::kRow) return j / kFp8Block * codes.dim(0) + i;
  return i / kFp8Block * fp8_scales_stride(codes.dim(1)) + j / kFp8Block;
}

Spec fp8_scales_spec(Fp8Tile tile, std::int64_t outer, std::int64_t k) {
  if (tile == Fp8Tile::kTensor) return {Dtype::kF32, {1}};
  if (tile == Fp8Tile::kRow) return {Dtype::kF32, {num_fp8_blocks(k), outer}};
  return {Dtype::kF32, {num_fp8_blocks(outer), fp8_scales_stride(k)}};
}

void round_to_fp8(Run& run, Tensor x, bool transposed, const Fp8Matrix& out) {
  const std::int64_t rows = x.shape().num_rows(), cols = x.dim(-1);
  check_matrix("round_to_fp8", out);
  check_size("round_to_fp8", Dtype::kBf16, rows * cols, {x});
  ATOLL_CHECK(
      out.codes.dim(0) == (transposed ? cols : rows) && out.codes.num_elements() == rows * cols,
      "round_to_fp8: {} to {}", x.spec().to_string(), out.codes.spec().to_string());
  dispatch<RoundToFp8Args>("round_to_fp8", kRound, run, {x, rows, cols, transposed, out},
                           cost_of({x, out.codes, out.scales}));
}

void matmul_fp8(Run& run, const Fp8Matrix& a, const Fp8Matrix& b, Tensor c, Fp8Sums sums,
                Tensor bias, bool accumulate, Tensor residual) {
  check_matrix("matmul_fp8", a);
  check_matrix("matmul_fp8", b);
  const std::int64_t m = a.codes.dim(0), n = b.codes.dim(0), k = a.codes.dim(1);
  ATOLL_CHECK(b.codes.dim(1) == k && (c.dtype() == Dtype::kBf16 || c.dtype() == Dtype::kF32),
              "matmul_fp8 of {} and {} into {}", a.codes.spec().to_string(),
              b.codes.spec().to_string(), c.spec().to_string());
  check_size("matmul_fp8", c.dtype(), m * n, {c});
  if (bias.defined()) check_size("matmul_fp8", c.dtype(), n, {bias});
  if (residual.defined()) check_size("matmul_fp8", c.dtype(), m * n, {residual});
  OpCost cost =
      cost_of({a.codes, b.codes, a.scales, b.scales, c, residual},
              2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  cost.shape = {m, n, k};
  dispatch<MatmulFp8Args>("matmul_fp8", kMatmul, run,
                          {a, b, m, n, k, c, bias, sums, accumulate, residual}, cost);
}

void linear_fp8(Run& run, Fp8Scaling scaling, Tensor x, Tensor w, Tensor y, Tensor bias,
                Tensor residual) {
  Run inner = run;
  const Fp8Matrix a = rounded(inner, Fp8Format::kE4M3, activations(scaling), x, false);
  const Fp8Matrix b = rounded(inner, Fp8Format::kE4M3, weights(scaling), w, false);
  // cuBLASLt has no fast sums beside scales of parts.
  const Fp8Sums sums = scaling == Fp8Scaling::kTensor ? Fp8Sums::kFast : Fp8Sums::kExact;
  matmul_fp8(inner, a, b, y, sums, bias, false, residual);
}

void linear_fp8_backward_input(Run& run, Fp8Scaling scaling, Tensor dy, Tensor w, Tensor dx) {
  Run inner = run;
  const Fp8Matrix a = rounded(inner, gradients(scaling), activations(scaling), dy, false);
  const Fp8Matrix b = rounded(inner, Fp8Format::kE4M3, weights(scaling), w, true);
  matmul_fp8(inner, a, b, dx, Fp8Sums::kExact);
}

void linear_fp8_backward_weight(Run& run, Fp8Scaling scaling, Tensor dy, Tensor x, Tensor dw) {
  Run inner = run;
  const Fp8Matrix a = rounded(inner, gradients(scaling), activations(scaling), dy, true);
  const Fp8Matrix b = rounded(inner, Fp8Format::kE4M3, activations(scaling), x, true);
  matmul_fp8(inner, a, b, dw, Fp8Sums::kExact, {}, /*accumulate=*/true);
}

std::size_t round_to_fp8_scratch_bytes(std::int64_t elements) {
  return cuda::round_to_fp8_scratch_bytes(elements);
}

std::size_t linear_fp8_scratch_bytes(const Spec& x, const Spec& w) {
  const std::int64_t rows = x.shape.num_rows(), in = w.shape.dim(1), out = w.shape.dim(0);
  const std::size_t forward = matrix_bytes(rows, in) + matrix_bytes(out, in);
  const std::size_t input = matrix_bytes(rows, out) + matrix_bytes(in, out);
  const std::size_t weight = matrix_bytes(out, rows) + matrix_bytes(in, rows);
  return std::max({forward, input, weight}) +
         round_to_fp8_scratch_bytes(std::max({rows * in, rows * out, in * out}));
}

}  // namespace atl::ops
