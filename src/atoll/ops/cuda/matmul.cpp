#include "atoll/ops/cuda/matmul.h"

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/ops/cuda/grouped_matmul.h"
#include "atoll/ops/cuda/products.h"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/ref/matmul.h"

namespace atl::ops::cuda {

namespace {

std::string description(const MatmulArgs& args) {
  constexpr const char* kNames[] = {"nn", "nt", "tn"};
  return fmt::format("matmul {} {} x {} x {}, {} {} {}{}{}",
                     kNames[static_cast<std::size_t>(args.shape.transpose)], args.shape.m,
                     args.shape.n, args.shape.k, dtype_name(args.a.dtype()),
                     dtype_name(args.b.dtype()), dtype_name(args.c.dtype()),
                     args.bias.defined() ? ", bias" : "", args.accumulate ? ", accumulates" : "");
}

}  // namespace

Declined matmul(Run& run, const MatmulArgs& args) {
  if (args.c.dtype() == Dtype::kF64) return "f64";
  if (run.stream->device().kind() != DeviceKind::kCuda) return "not in a GPU's memory";
  if (args.a.dtype() != args.b.dtype()) return mixed_matmul(run, args);
  // What cuBLASLt does not take, the fake GPU does not either.
  if (args.a.dtype() == Dtype::kF32 && args.c.dtype() != Dtype::kF32) return "f32 into bf16";
  if (args.bias.defined() && args.bias.dtype() != args.c.dtype()) return "a bias of another dtype";
  if (auto* stream = dynamic_cast<fake_cuda::FakeStream*>(run.stream)) {
    stream->call_library(description(args),
                         [args, &threads = run.threads()] { ref::matmul(threads, args); });
    return kServed;
  }
  return multiply(run, args);
}

}  // namespace atl::ops::cuda
