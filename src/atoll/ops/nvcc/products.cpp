#include "atoll/ops/cuda/products.h"

#include "atoll/device/cuda/products.h"
#include "atoll/device/cuda/runtime.h"

namespace atl::ops::cuda {

namespace {

cudaDataType_t type_of(Dtype dtype) {
  return dtype == Dtype::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
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
                         .operands = type_of(args.a.dtype()),
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

}  // namespace atl::ops::cuda
