#include "atoll/nn/norm.h"

#include "atoll/ops/elementwise/elementwise.h"
#include "atoll/ops/norm/norm.h"

namespace atl::nn {

namespace {

// Both norms keep `num_statistics` numbers a row, and owe W as many sums of each column.
Footprint norm_footprint(const Spec& x, const Param& weight, int num_statistics, bool trains) {
  ATOLL_CHECK(x.shape.dim(-1) == weight.spec.shape.dim(0) && x.dtype == weight.spec.dtype,
              "{} of {} applied to {}", weight.name, weight.spec.to_string(), x.to_string());
  Footprint footprint;
  footprint.y = x;
  footprint.need_x = kForInput;
  footprint.need_dy = kForInput;
  footprint.adds_dresidual = true;
  footprint.kept.assign(static_cast<std::size_t>(num_statistics),
                        Spec{compute_dtype(x.dtype), {x.shape.num_rows()}});
  if (trains) footprint.owed = {ops::norm_sums_spec(x, num_statistics)};
  footprint.y_again = true;
  return footprint;
}

Tensor owed_sums(bool trains, const Pass& pass) {
  return trains ? pass.owed[0] : Tensor();
}

}  // namespace

Footprint RmsNorm::plan(Spec x) const {
  return norm_footprint(x, weight_, 1, !weight_.frozen);
}

void RmsNorm::forward(Run& run, const Pass& pass) {
  ops::rms_norm_forward(run, scale_, pass.x, weight_.value, pass.y, pass.kept[0]);
}

void RmsNorm::backward_input(Run& run, const Pass& pass) {
  ops::rms_norm_backward(run, scale_, pass.x, weight_.value, pass.kept[0], pass.dy, pass.dresidual,
                         pass.dx, owed_sums(!weight_.frozen, pass));
}

void RmsNorm::backward_weight(Run& run, const Pass& pass) {
  if (weight_.frozen) return;
  ops::add_norm_sums(run, pass.x.shape().num_rows(), pass.owed[0], weight_.grad);
}

// The gradient of the one of the two that is frozen, which goes nowhere, is in scratch.
Footprint LayerNorm::plan(Spec x) const {
  Footprint footprint = norm_footprint(x, weight_, 2, !weight_.frozen || !bias_.frozen);
  if (weight_.frozen != bias_.frozen) {
    footprint.scratch_bytes = align_up(weight_.spec.in_compute_dtype().bytes());
  }
  return footprint;
}

void LayerNorm::forward(Run& run, const Pass& pass) {
  ops::layer_norm_forward(run, eps_, pass.x, weight_.value, bias_.value, pass.y, pass.kept[0],
                          pass.kept[1]);
}

void LayerNorm::backward_input(Run& run, const Pass& pass) {
  ops::layer_norm_backward(run, pass.x, weight_.value, pass.kept[0], pass.kept[1], pass.dy,
                           pass.dresidual, pass.dx,
                           owed_sums(!weight_.frozen || !bias_.frozen, pass));
}

void LayerNorm::backward_weight(Run& run, const Pass& pass) {
  if (weight_.frozen && bias_.frozen) return;
  Run inner = run;
  Tensor nowhere;
  if (weight_.frozen != bias_.frozen) {
    nowhere = inner.take_scratch(weight_.spec.in_compute_dtype());
    ops::fill_zero(inner, nowhere);
  }
  ops::add_norm_sums(inner, pass.x.shape().num_rows(), pass.owed[0],
                     weight_.frozen ? nowhere : weight_.grad, bias_.frozen ? nowhere : bias_.grad);
}

void LayerNorm::visit(ParamVisitor& visitor) {
  visitor.param(weight_);
  visitor.param(bias_);
}

}  // namespace atl::nn
