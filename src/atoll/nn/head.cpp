#include "atoll/nn/head.h"

#include <algorithm>

#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/matmul.h"
#include "atoll/ops/packed/packed.h"

namespace atl::nn {

namespace {

// What a packed head needs for a chunk of rows: their logits, and the scratch of two products.
std::size_t packed_scratch_bytes(const Spec& x, const Shape& weight) {
  const std::int64_t rows = ops::logits_rows(x.shape.num_rows(), weight.dim(0));
  return align_up(Spec{Dtype::kF32, {rows, weight.dim(0)}}.bytes()) +
         ops::matmul_packed_scratch_bytes(rows, weight);
}

// As ops::linear_cross_entropy, with the product of a packed weight, which is not trained.
void packed_cross_entropy(Run& run, const Tensor& x, const ops::PackedMatrix& weight,
                          const Tensor& targets, const Tensor& loss, const Tensor& dx) {
  const std::int64_t vocab = weight.shape.dim(0);
  const std::int64_t chunk = ops::logits_rows(x.dim(0), vocab);
  Run inner = run;
  const Tensor room = inner.take_scratch({Dtype::kF32, {chunk, vocab}});
  for (std::int64_t begin = 0; begin < x.dim(0); begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, x.dim(0));
    const Tensor logits = room.rows(0, end - begin);
    ops::matmul_packed(inner, x.rows(begin, end), weight, logits);
    ops::cross_entropy_of_logits(inner, /*factor=*/1, logits, targets.rows(begin, end),
                                 loss.rows(begin, end), dx.defined());
    if (dx.defined()) ops::matmul_packed_backward(inner, logits, weight, dx.rows(begin, end));
  }
}

}  // namespace

Footprint LinearCrossEntropy::plan(Spec x) const {
  ATOLL_CHECK(x.shape.rank() == 3, "{}", x.to_string());
  Footprint footprint;
  footprint.y = {compute_dtype(x.dtype), {x.shape.dim(0), x.shape.dim(1)}};
  footprint.kept = {x};  // dx
  footprint.gradients_in_forward = true;
  footprint.scratch_bytes = ops::linear_cross_entropy_scratch_bytes(
      {x.dtype, {x.shape.num_rows(), x.shape.dim(-1)}}, weight_->spec, device_);
  if (weight_->is_packed()) footprint.scratch_bytes = packed_scratch_bytes(x, weight_->spec.shape);
  return footprint;
}

void LinearCrossEntropy::forward(Run& run, const Pass& pass) {
  const std::int64_t rows = pass.x.shape().num_rows();
  const Shape flat = {rows, pass.x.dim(-1)};
  Tensor dx;
  Tensor dweight;
  if (run.training) {
    dx = pass.kept[0].reshaped(flat);
    dweight = weight_->grad;
  }
  if (weight_->is_packed()) {
    return packed_cross_entropy(run, pass.x.reshaped(flat), weight_->packed,
                                pass.batch->targets.reshaped({rows}), pass.y.reshaped({rows}), dx);
  }
  ops::linear_cross_entropy(run, /*factor=*/1, pass.x.reshaped(flat), weight_->value,
                            pass.batch->targets.reshaped({rows}), pass.y.reshaped({rows}), dx,
                            dweight);
}

void LinearCrossEntropy::backward_input(Run& run, const Pass& pass) {
  ops::copy(run, pass.kept[0], pass.dx);
}

void LinearCrossEntropy::logits(Run& run, Tensor x, Tensor out) const {
  if (weight_->as_int8) return ops::matmul_int8(run, x, weight_->int8, out);
  if (weight_->is_packed()) return ops::matmul_packed(run, x, weight_->packed, out);
  ops::matmul(run, ops::Transpose::kNT, x, weight_->value, out);
}

std::size_t LinearCrossEntropy::logits_scratch_bytes(const Spec& x) const {
  if (weight_->as_int8) return ops::matmul_int8_scratch_bytes(x, weight_->spec.shape);
  if (weight_->is_packed()) {
    return ops::matmul_packed_scratch_bytes(x.shape.num_rows(), weight_->spec.shape);
  }
  return ops::matmul_scratch_bytes(
      ops::Transpose::kNT, x,
      {weight_->as_bf16 ? Dtype::kBf16 : weight_->spec.dtype, weight_->spec.shape}, device_);
}

}  // namespace atl::nn
