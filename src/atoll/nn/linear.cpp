#include "atoll/nn/linear.h"

#include <algorithm>

#include "atoll/ops/matmul.h"

namespace atl::nn {

using ops::Transpose;

Linear::Linear(Param weight, Param bias) : weight_(std::move(weight)), bias_(std::move(bias)) {
  ATOLL_CHECK(weight_.spec.shape.rank() == 2, "{}", weight_.spec.to_string());
}

Footprint Linear::plan(Spec x) const {
  const Spec& w = weight_.spec;
  ATOLL_CHECK(x.shape.dim(-1) == w.shape.dim(1) && x.dtype == w.dtype, "{} of {} applied to {}",
              weight_.name, w.to_string(), x.to_string());
  Footprint footprint;
  footprint.y = x.with_last(w.shape.dim(0));
  footprint.need_x = kForWeight;
  footprint.need_dy = kForInput | kForWeight;
  footprint.scratch_bytes = std::max({ops::matmul_scratch_bytes(Transpose::kNT, x, w),
                                      ops::matmul_scratch_bytes(Transpose::kNN, footprint.y, w),
                                      ops::matmul_scratch_bytes(Transpose::kTN, footprint.y, x),
                                      has_bias() ? ops::column_sum_scratch_bytes(footprint.y) : 0});
  return footprint;
}

void Linear::forward(Run& run, const Pass& pass) {
  ops::matmul(run, Transpose::kNT, pass.x, weight_.value, pass.y, bias_.value);
}

void Linear::backward_input(Run& run, const Pass& pass) {
  ops::matmul(run, Transpose::kNN, pass.dy, weight_.value, pass.dx);
}

void Linear::backward_weight(Run& run, const Pass& pass) {
  ops::matmul(run, Transpose::kTN, pass.dy, pass.x, weight_.grad, {}, /*accumulate=*/true);
  if (has_bias()) ops::column_sum(run, pass.dy, bias_.grad);
}

void Linear::visit(ParamVisitor& visitor) {
  visitor.param(weight_);
  if (has_bias()) visitor.param(bias_);
}

}  // namespace atl::nn
