#include "atoll/ops/cross_entropy/cross_entropy.h"

#include "atoll/ops/cross_entropy/args.h"
#include "atoll/ops/cross_entropy/cpu.h"
#include "atoll/ops/cross_entropy/cuda.h"
#include "atoll/ops/cross_entropy/ref.h"
#include "atoll/ops/serve.h"

namespace atl::ops {

namespace {

Declined cross_entropy_ref(Run& run, const CrossEntropyArgs& args) {
  return serve_any_storage(run, args.x.dtype(), [&]<typename T>(T) {
    check_targets(args);
    Run inner = run;
    const std::int64_t chunk_rows = cross_entropy_chunk_rows(args.rows, args.vocab);
    Tensor logits = inner.take_scratch({dtype_of<Compute<T>>(), {chunk_rows, args.vocab}});
    ref::linear_cross_entropy<T>(inner.threads(), args, chunk_rows, logits.data<Compute<T>>());
  });
}

constexpr Implementation<CrossEntropyArgs> kCrossEntropy[] = {
    {"cpu", cpu::cross_entropy},
    {"cuda", cuda::cross_entropy},
    {"ref", cross_entropy_ref},
};

}  // namespace

void linear_cross_entropy(Run& run, double factor, Tensor x, Tensor weight, Tensor targets,
                          Tensor loss, Tensor dx, Tensor dweight) {
  ATOLL_CHECK(x.shape().rank() == 2 && weight.shape().rank() == 2 && x.dim(1) == weight.dim(1),
              "x {}, weight {}", x.spec().to_string(), weight.spec().to_string());
  CrossEntropyArgs args;
  args.rows = x.dim(0);
  args.width = x.dim(1);
  args.vocab = weight.dim(0);
  if (args.rows == 0) return;
  ATOLL_CHECK(args.vocab > 0, "no vocabulary: weight is {}", weight.spec().to_string());
  ATOLL_CHECK(dx.defined() || !dweight.defined(), "dweight without dx");
  check_size("linear_cross_entropy", Dtype::kI32, args.rows, {targets});
  check_size("linear_cross_entropy", compute_dtype(x.dtype()), args.rows, {loss});
  check_spec("linear_cross_entropy", x.spec(), {x});
  check_spec("linear_cross_entropy", {x.dtype(), weight.shape()}, {weight});
  if (dx.defined()) {
    check_spec("linear_cross_entropy", x.spec(), {dx});
  }
  if (dweight.defined()) {
    check_spec("linear_cross_entropy", weight.spec().in_compute_dtype(), {dweight});
  }
  args.factor = factor;
  args.grad_scale = factor * run.loss_scale;
  args.x = x;
  args.weight = weight;
  args.targets = targets.data<std::int32_t>();
  args.loss = loss;
  args.dx = dx;
  args.dweight = dweight;
  const double product = 2.0 * static_cast<double>(args.rows) * static_cast<double>(args.width) *
                         static_cast<double>(args.vocab);
  OpCost cost = cost_of({x, weight, dx, dweight},
                        product * (1 + (dx.defined() ? 1 : 0) + (dweight.defined() ? 1 : 0)));
  cost.shape = {args.rows, args.vocab, args.width};
  dispatch<CrossEntropyArgs>("linear_cross_entropy", kCrossEntropy, run, args, cost);
}

namespace {

struct LogitsArgs {
  CrossEntropyArgs of;
  Tensor logits;
  bool gradient;
};

constexpr Implementation<LogitsArgs> kOfLogits[] = {{"cpu", [](Run& run, const LogitsArgs& a) {
                                                       return serve_host(run, [&] {
                                                         check_targets(a.of);
                                                         cpu::losses_of_logits(run, a.of, a.logits,
                                                                               a.gradient);
                                                       });
                                                     }}};

}  // namespace

void cross_entropy_of_logits(Run& run, double factor, Tensor logits, Tensor targets, Tensor loss,
                             bool gradient) {
  LogitsArgs args = {{}, logits, gradient};
  args.of.rows = logits.dim(0);
  args.of.vocab = logits.dim(1);
  if (args.of.rows == 0) return;
  check_size("cross_entropy_of_logits", Dtype::kF32, args.of.rows * args.of.vocab, {logits});
  check_size("cross_entropy_of_logits", Dtype::kI32, args.of.rows, {targets});
  check_size("cross_entropy_of_logits", Dtype::kF32, args.of.rows, {loss});
  args.of.grad_scale = factor * run.loss_scale;
  args.of.targets = targets.data<std::int32_t>();
  args.of.loss = loss;
  dispatch<LogitsArgs>("cross_entropy_of_logits", kOfLogits, run, args, cost_of({logits}));
}

std::int64_t logits_rows(std::int64_t rows, std::int64_t vocab) {
  return cross_entropy_chunk_rows(rows, vocab);
}

std::int64_t gpu_logits_rows(std::int64_t row_bytes, std::int64_t rows) {
  return cuda::logits_chunk_rows(row_bytes, rows);
}

std::size_t linear_cross_entropy_scratch_bytes(const Spec& x, const Spec& weight,
                                               DeviceKind device) {
  const std::int64_t rows = x.shape.num_rows();
  const std::int64_t vocab = weight.shape.dim(0);
  if (device == DeviceKind::kCuda) return cuda::cross_entropy_scratch_bytes(x.dtype, rows, vocab);
  return cpu::cross_entropy_scratch_bytes(x.dtype, rows, vocab, weight.shape.dim(1));
}

}  // namespace atl::ops
