#include "atoll/ops/matmul/matmul.h"

#include <algorithm>
#include <iterator>

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/int8/cuda_narrow_weights.h"
#include "atoll/ops/matmul/args.h"
#include "atoll/ops/matmul/cpu_amx.h"
#include "atoll/ops/matmul/cpu_bf16.h"
#include "atoll/ops/matmul/cpu_dnnl.h"
#include "atoll/ops/matmul/cpu_few_rows.h"
#include "atoll/ops/matmul/cpu_tiled.h"
#include "atoll/ops/matmul/cpu_widened.h"
#include "atoll/ops/matmul/cuda.h"
#include "atoll/ops/matmul/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

Declined matmul_ref(Run& run, const MatmulArgs& args) {
  return serve_host(run, [&] { ref::matmul(run.threads(), args); });
}

constexpr Implementation<MatmulArgs> kMatmul[] = {
    {"few_rows", cpu::matmul_few_rows},
    {"tiled", cpu::matmul_tiled},
    {"dnnl", cpu::matmul_dnnl},
    {"amx", cpu::matmul_amx},
    {"bf16", cpu::matmul_bf16},
    {"widened", cpu::matmul_widened},
    {"cuda_bf16_weights", cuda::matmul_bf16_weights},
    {"cuda", cuda::matmul},
    {"ref", matmul_ref},
};

// By what is transposed, in the order of Transpose.
constexpr const char* kNames[] = {"matmul_nn", "matmul_nt", "matmul_tn"};

MatmulShape shape_of(Transpose transpose, const Shape& a, const Shape& b) {
  const bool a_transposed = transpose == Transpose::kTN;
  const bool b_transposed = transpose == Transpose::kNT;
  const std::int64_t m = a_transposed ? a.dim(-1) : a.num_rows();
  const std::int64_t k = a_transposed ? a.num_rows() : a.dim(-1);
  const std::int64_t b_k = b_transposed ? b.dim(-1) : b.num_rows();
  ATOLL_CHECK(a.rank() > 0 && b.rank() > 0 && k == b_k, "matmul of {} and {}, transpose {}",
              a.to_string(), b.to_string(), static_cast<int>(transpose));
  return {transpose, m, b_transposed ? b.num_rows() : b.dim(-1), k};
}

/// All f64, or each f32 or bf16.
bool dtypes_fit(Dtype a, Dtype b, Dtype c) {
  if (c == Dtype::kF64) return a == c && b == c;
  const auto fits = [](Dtype dtype) { return dtype == Dtype::kF32 || dtype == Dtype::kBf16; };
  return fits(a) && fits(b) && fits(c);
}

/// Checks the operands, of which `args` has all but the shape, which is filled in. False: c is
/// empty.
bool check_operands(Transpose transpose, MatmulArgs& args) {
  const auto& [ignored, a, b, c, bias, accumulate, residual, hidden] = args;
  const MatmulShape shape = shape_of(transpose, a.shape(), b.shape());
  ATOLL_CHECK(c.shape().rank() > 0 && c.shape().num_rows() == shape.m && c.dim(-1) == shape.n &&
                  dtypes_fit(a.dtype(), b.dtype(), c.dtype()),
              "matmul of {} and {} into {}", a.spec().to_string(), b.spec().to_string(),
              c.spec().to_string());
  args.shape = shape;
  if (shape.m == 0 || shape.n == 0) return false;
  check_size("matmul", a.dtype(), shape.m * shape.k, {a});
  check_size("matmul", b.dtype(), shape.k * shape.n, {b});
  check_size("matmul", c.dtype(), shape.m * shape.n, {c});
  if (bias.defined()) {
    const bool is_wider = b.dtype() == Dtype::kBf16 && bias.dtype() == Dtype::kF32;
    check_size("matmul", is_wider ? Dtype::kF32 : b.dtype(), shape.n, {bias});
  }
  for (const Tensor& other : {residual, hidden}) {
    if (other.defined()) check_size("matmul", c.dtype(), shape.m * shape.n, {other});
  }
  return true;
}

OpCost cost_of_product(const MatmulArgs& args) {
  const MatmulShape& shape = args.shape;
  OpCost cost = cost_of({args.a, args.b, args.c, args.residual, args.hidden},
                        2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                            static_cast<double>(shape.k));
  cost.shape = {shape.m, shape.n, shape.k};
  return cost;
}

void run_matmul(Run& run, Transpose transpose, MatmulArgs args) {
  if (!check_operands(transpose, args)) return;
  dispatch<MatmulArgs>(kNames[static_cast<std::size_t>(transpose)], kMatmul, run, args,
                       cost_of_product(args));
}

// False: this GPU, or its library, has no product that writes both.
bool matmul_gelu(Run& run, Gelu kind, Tensor x, Tensor weight, Tensor bias, Tensor hidden,
                 Tensor h) {
  MatmulArgs args = {{}, x, weight, h, bias, false, {}, hidden};
  if (!check_operands(Transpose::kNT, args)) return true;
  const OpProfile::Call call(run.profile);
  const Declined reason = cuda::matmul_gelu(run, kind, args);
  log_choice("linear_gelu", "cuda", reason);
  if (reason != kServed) return false;
  call.note(kNames[static_cast<std::size_t>(Transpose::kNT)], "cuda", cost_of_product(args));
  return true;
}

}  // namespace

void matmul(Run& run, Transpose transpose, Tensor a, Tensor b, Tensor c, Tensor bias,
            bool accumulate) {
  run_matmul(run, transpose, {{}, a, b, c, bias, accumulate});
}

void matmul_add(Run& run, Transpose transpose, Tensor a, Tensor b, Tensor residual, Tensor c,
                Tensor bias) {
  // Of weights in fewer bits than activations, as generation has them, no product adds one either.
  if (run.stream->device().kind() == DeviceKind::kCpu || a.dtype() != b.dtype()) {
    matmul(run, transpose, a, b, c, bias);
    return add(run, residual, c, c);
  }
  run_matmul(run, transpose, {{}, a, b, c, bias, false, residual});
}

void linear_gelu(Run& run, Gelu kind, Tensor x, Tensor weight, Tensor bias, Tensor hidden,
                 Tensor h) {
  check_spec("linear_gelu", hidden.spec(), {h});
  if (run.stream->device().kind() == DeviceKind::kCuda &&
      matmul_gelu(run, kind, x, weight, bias, hidden, h)) {
    return;
  }
  matmul(run, Transpose::kNT, x, weight, hidden, bias);
  gelu_forward(run, kind, hidden, h);
}

std::size_t matmul_scratch_bytes(Transpose transpose, const Spec& a, const Spec& b,
                                 DeviceKind device) {
  const MatmulShape shape = shape_of(transpose, a.shape, b.shape);
  const bool is_cpu = device == DeviceKind::kCpu;
  const auto all_of = [&](Dtype dtype) { return a.dtype == dtype && b.dtype == dtype; };
  if (all_of(Dtype::kF32)) return is_cpu ? cpu::matmul_tiled_scratch_bytes(shape) : 0;
  if (all_of(Dtype::kBf16)) return is_cpu ? cpu::matmul_amx_scratch_bytes(shape) : 0;
  const bool is_narrow =
      transpose == Transpose::kNT && a.dtype == Dtype::kF32 && b.dtype == Dtype::kBf16;
  return std::max(cuda::matmul_scratch_bytes(a, b),
                  is_narrow ? cuda::narrow_weights_scratch_bytes(shape.m, b.shape) : 0);
}

}  // namespace atl::ops
