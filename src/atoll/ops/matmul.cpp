#include "atoll/ops/matmul.h"

#include <iterator>

#include "atoll/ops/cpu/matmul_dnnl.h"
#include "atoll/ops/cpu/matmul_few_rows.h"
#include "atoll/ops/matmul_args.h"
#include "atoll/ops/ref/matmul.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

Declined matmul_ref(Run& run, const MatmulArgs& args) {
  return serve_any_float(run, args.c.dtype(), [&]<typename T>(T) {
    ref::matmul<T>(run.threads(), args.shape, args.a.data<T>(), args.b.data<T>(), args.c.data<T>(),
                   args.bias.defined() ? args.bias.data<T>() : nullptr, args.accumulate);
  });
}

constexpr Implementation<MatmulArgs> kMatmul[] = {
    {"few_rows", cpu::matmul_few_rows},
    {"dnnl", cpu::matmul_dnnl},
    {"ref", matmul_ref},
};

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

}  // namespace

void matmul(Run& run, Transpose transpose, Tensor a, Tensor b, Tensor c, Tensor bias,
            bool accumulate) {
  const MatmulShape shape = shape_of(transpose, a.shape(), b.shape());
  const Dtype dtype = c.dtype();
  ATOLL_CHECK(c.shape().rank() > 0 && c.shape().num_rows() == shape.m && c.dim(-1) == shape.n &&
                  a.dtype() == dtype && b.dtype() == dtype,
              "matmul of {} and {} into {}", a.spec().to_string(), b.spec().to_string(),
              c.spec().to_string());
  if (shape.m == 0 || shape.n == 0) return;
  check_size("matmul", dtype, shape.m * shape.k, {a});
  check_size("matmul", dtype, shape.k * shape.n, {b});
  check_size("matmul", dtype, shape.m * shape.n, {c});
  if (bias.defined()) check_size("matmul", dtype, shape.n, {bias});
  dispatch<MatmulArgs>("matmul", kMatmul, run, {shape, a, b, c, bias, accumulate});
}

std::size_t matmul_scratch_bytes(Transpose transpose, const Spec& a, const Spec& b) {
  if (a.dtype != Dtype::kF32) return 0;
  return cpu::matmul_dnnl_scratch_bytes(shape_of(transpose, a.shape, b.shape));
}

}  // namespace atl::ops
