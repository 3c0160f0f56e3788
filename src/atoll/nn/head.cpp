#include "atoll/nn/head.h"

#include "atoll/ops/cross_entropy/cross_entropy.h"
#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/int8/int8.h"
#include "atoll/ops/matmul/matmul.h"

namespace atl::nn {

Footprint LinearCrossEntropy::plan(Spec x) const {
  ATOLL_CHECK(x.shape.rank() == 3, "{}", x.to_string());
  Footprint footprint;
  footprint.y = {compute_dtype(x.dtype), {x.shape.dim(0), x.shape.dim(1)}};
  footprint.kept = {x};  // dx
  footprint.gradients_in_forward = true;
  footprint.scratch_bytes = ops::linear_cross_entropy_scratch_bytes(
      {x.dtype, {x.shape.num_rows(), x.shape.dim(-1)}}, weight_->spec, device_);
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
  ops::linear_cross_entropy(run, /*factor=*/1, pass.x.reshaped(flat), weight_->value,
                            pass.batch->targets.reshaped({rows}), pass.y.reshaped({rows}), dx,
                            dweight);
}

void LinearCrossEntropy::backward_input(Run& run, const Pass& pass) {
  ops::copy(run, pass.kept[0], pass.dx);
}

void LinearCrossEntropy::logits(Run& run, Tensor x, Tensor out) const {
  if (weight_->as_int8) return ops::matmul_int8(run, x, weight_->int8, out);
  ops::matmul(run, ops::Transpose::kNT, x, weight_->value, out);
}

std::size_t LinearCrossEntropy::logits_scratch_bytes(const Spec& x) const {
  if (weight_->as_int8) return ops::matmul_int8_scratch_bytes(x, weight_->spec.shape);
  return ops::matmul_scratch_bytes(
      ops::Transpose::kNT, x,
      {weight_->as_bf16 ? Dtype::kBf16 : weight_->spec.dtype, weight_->spec.shape}, device_);
}

}  // namespace atl::nn
