#include "atoll/ops/cuda/products.h"

#include "atoll/device/cuda/products.h"
#include "atoll/device/cuda/runtime.h"

namespace atl::ops::cuda {

namespace {

cudaDataType_t type_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// "TN" is what cuBLASLt has for numbers of 8 bits on every GPU: rows of both along k.
atl::cuda::ProductOperand operand_of(const Fp8Matrix& matrix) {
  const auto mode = matrix.tile == Fp8Tile::kTensor ? CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F
                    : matrix.tile == Fp8Tile::kRow  ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                                    : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  return {matrix.format == Fp8Format::kE4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2, matrix.scales.raw(),
          mode};
}

int capability_major(int index) {
  int major = 0;
  atl::cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
                   "asking for the compute capability");
  return major;
}

}  // namespace

Declined multiply(Run& run, const MatmulArgs& args) {
  auto* stream = dynamic_cast<atl::cuda::CudaStream*>(run.stream);
  if (stream == nullptr) return "not a GPU's stream";
  if (args.hidden.defined() && capability_major(stream->index()) < 9) return "a GPU before Hopper";
  const bool is_served = stream->products().multiply(
      stream->native(), {.transpose_a = args.shape.transpose == Transpose::kTN,
                         .transpose_b = args.shape.transpose == Transpose::kNT,
                         .m = args.shape.m,
                         .n = args.shape.n,
                         .k = args.shape.k,
                         .of_a = {type_of(args.a.dtype())},
                         .of_b = {type_of(args.b.dtype())},
                         .result = type_of(args.c.dtype()),
                         .a = args.a.raw(),
                         .b = args.b.raw(),
                         .c = args.c.raw(),
                         .bias = args.bias.defined() ? args.bias.raw() : nullptr,
                         .residual = args.residual.defined() ? args.residual.raw() : nullptr,
                         .gelu_of = args.hidden.defined() ? args.hidden.raw() : nullptr,
                         .accumulate = args.accumulate});
  return is_served ? kServed : "the library has no algorithm with GELU";
}

Declined multiply_fp8(Run& run, const MatmulFp8Args& args) {
  auto* stream = dynamic_cast<atl::cuda::CudaStream*>(run.stream);
  if (stream == nullptr) return "not a GPU's stream";
  stream->products().multiply(stream->native(),
                              {.transpose_b = true,
                               .m = args.m,
                               .n = args.n,
                               .k = args.k,
                               .of_a = operand_of(args.a),
                               .of_b = operand_of(args.b),
                               .result = type_of(args.c.dtype()),
                               .a = args.a.codes.raw(),
                               .b = args.b.codes.raw(),
                               .c = args.c.raw(),
                               .bias = args.bias.defined() ? args.bias.raw() : nullptr,
                               .residual = args.residual.defined() ? args.residual.raw() : nullptr,
                               .accumulate = args.accumulate,
                               .fast_sums = args.sums == Fp8Sums::kFast});
  return kServed;
}

}  // namespace atl::ops::cuda
