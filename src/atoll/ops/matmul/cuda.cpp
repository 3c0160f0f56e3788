#include "atoll/ops/matmul/cuda.h"

#include "atoll/device/fake_cuda/fake_cuda.h"
#include "atoll/ops/activation/ref.h"
#include "atoll/ops/cuda/products.h"
#include "atoll/ops/cuda/serve.h"
#include "atoll/ops/elementwise/cuda.h"
#include "atoll/ops/matmul/cuda_grouped_matmul.h"
#include "atoll/ops/matmul/ref.h"

namespace atl::ops::cuda {

namespace {

std::string description(const MatmulArgs& args) {
  constexpr const char* kNames[] = {"nn", "nt", "tn"};
  return fmt::format("matmul {} {} x {} x {}, {} {} {}{}{}{}{}",
                     kNames[static_cast<std::size_t>(args.shape.transpose)], args.shape.m,
                     args.shape.n, args.shape.k, dtype_name(args.a.dtype()),
                     dtype_name(args.b.dtype()), dtype_name(args.c.dtype()),
                     args.bias.defined() ? ", bias" : "", args.accumulate ? ", accumulates" : "",
                     args.residual.defined() ? ", residual" : "",
                     args.hidden.defined() ? ", gelu" : "");
}

// What cuBLASLt does not take, the fake GPU does not either.
Declined refusal(const MatmulArgs& args) {
  if (args.c.dtype() == Dtype::kF64) return "f64";
  if (args.a.dtype() == Dtype::kF32 && args.c.dtype() != Dtype::kF32) return "f32 into bf16";
  if (args.bias.defined() && args.bias.dtype() != args.c.dtype()) return "a bias of another dtype";
  return kServed;
}

// Gradients of the logits of a vocabulary, f32 beside bf16: tensor cores take them as bf16. Those
// of a router's few experts stay what they are, for mixed_matmul.
bool is_rounded_first(const Spec& a, const Spec& b) {
  constexpr std::int64_t kVocabulary = 1024;
  return a.dtype == Dtype::kF32 && b.dtype == Dtype::kBf16 && a.shape.dim(-1) >= kVocabulary;
}

}  // namespace

Declined matmul(Run& run, const MatmulArgs& args) {
  if (run.stream->device().kind() != DeviceKind::kCuda) return "not in a GPU's memory";
  if (args.residual.defined() && args.a.dtype() != args.b.dtype()) {
    return "a residual of operands of two dtypes";
  }
  if (is_rounded_first(args.a.spec(), args.b.spec())) {
    Run inner = run;
    MatmulArgs rounded = args;
    rounded.a = inner.take_scratch({Dtype::kBf16, args.a.shape()});
    convert(inner, args.a, rounded.a);
    return matmul(inner, rounded);
  }
  if (args.a.dtype() != args.b.dtype()) return mixed_matmul(run, args);
  const Declined refused = refusal(args);
  if (refused != kServed) return refused;
  if (auto* stream = dynamic_cast<fake_cuda::FakeStream*>(run.stream)) {
    stream->call_library(description(args),
                         [args, &threads = run.threads()] { ref::matmul(threads, args); });
    return kServed;
  }
  return multiply(run, args);
}

std::size_t matmul_scratch_bytes(const Spec& a, const Spec& b) {
  return is_rounded_first(a, b) ? align_up(Spec{Dtype::kBf16, a.shape}.bytes()) : 0;
}

Declined matmul_gelu(Run& run, Gelu kind, const MatmulArgs& args) {
  if (kind != Gelu::kTanh) return "not tanh's GELU";
  if (!args.all_of(Dtype::kBf16)) return "not bf16";
  if (args.shape.n % 8 != 0) return "rows that are not whole 16 bytes";
  auto* stream = dynamic_cast<fake_cuda::FakeStream*>(run.stream);
  if (stream == nullptr) return multiply(run, args);
  stream->call_library(description(args), [args, kind, &threads = run.threads()] {
    MatmulArgs product = args;
    product.c = args.hidden;
    ref::matmul(threads, product);
    ref::gelu_forward<Bf16>(kind, args.hidden, args.c);
  });
  return kServed;
}

}  // namespace atl::ops::cuda
