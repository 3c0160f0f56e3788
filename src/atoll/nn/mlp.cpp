#include "atoll/nn/mlp.h"

#include <algorithm>

#include "atoll/ops/matmul/matmul.h"

namespace atl::nn {

namespace {

// What the first product gave, and the activation, where it is kept.
enum Kept { kHidden, kKeptActivation };
// The gradient of kHidden; then the sums of its columns where a bias needs them; last the
// activation, where B makes it again.
enum Owed { kDhidden, kBiasSums };

// On a CPU the activation is not kept from forward: B needs the same exponentials for the gradient
// and makes it again at no cost.
Footprint mlp_footprint(const Linear& first, const Linear& second, const Spec& x,
                        std::int64_t width, bool keep_all) {
  const Footprint in = first.plan(x);
  const Spec activated = x.with_last(width);
  const Footprint out = second.plan(activated);
  Footprint footprint;
  footprint.y = out.y;
  footprint.adds_residual = out.adds_residual;
  footprint.need_x = kForWeight;
  footprint.need_dy = kForInput | kForWeight;
  footprint.kept = {in.y};
  footprint.owed = {in.y};
  (keep_all ? footprint.kept : footprint.owed).push_back(activated);
  footprint.scratch_bytes =
      align_up(activated.bytes()) + std::max(in.scratch_bytes, out.scratch_bytes);
  return footprint;
}

// The activation in forward: kept, or scratch.
Tensor take_activation(Run& run, const Pass& pass, bool keep_all, std::int64_t width) {
  if (keep_all) return pass.kept[kKeptActivation];
  return run.take_scratch(pass.kept[kHidden].spec().with_last(width));
}

// The activation in the backward passes.
Tensor activation(const Pass& pass, bool keep_all) {
  return keep_all ? pass.kept[kKeptActivation] : pass.owed.back();
}

// Where B makes it again: undefined where it is kept.
Tensor activation_again(const Pass& pass, bool keep_all) {
  return keep_all ? Tensor() : pass.owed.back();
}

}  // namespace

Footprint GluMlp::plan(Spec x) const {
  return mlp_footprint(gate_up_, down_, x, gate_up_.plan(x).y.shape.dim(-1) / 2, keep_all_);
}

void GluMlp::forward(Run& run, const Pass& pass) {
  const Tensor gate_up = pass.kept[kHidden];
  Run inner = run;
  const Tensor h = take_activation(inner, pass, keep_all_, gate_up.dim(-1) / 2);
  gate_up_.forward(inner, {.x = pass.x, .y = gate_up});
  if (kind_ == Glu::kSwiglu)
    ops::swiglu_forward(inner, gate_up, h);
  else
    ops::geglu_forward(inner, gelu(), gate_up, h);
  down_.forward(inner, {.x = h, .y = pass.y, .residual = pass.residual});
}

void GluMlp::backward_input(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor dh = inner.take_scratch(activation(pass, keep_all_).spec());
  down_.backward_input(inner, {.dx = dh, .dy = pass.dy});
  const Tensor again = activation_again(pass, keep_all_);
  if (kind_ == Glu::kSwiglu)
    ops::swiglu_backward(inner, pass.kept[kHidden], dh, pass.owed[kDhidden], again);
  else
    ops::geglu_backward(inner, gelu(), pass.kept[kHidden], dh, pass.owed[kDhidden], again);
  gate_up_.backward_input(inner, {.dx = pass.dx, .dy = pass.owed[kDhidden]});
}

void GluMlp::backward_weight(Run& run, const Pass& pass) {
  gate_up_.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDhidden]});
  down_.backward_weight(run, {.x = activation(pass, keep_all_), .dy = pass.dy});
}

void GluMlp::visit(ParamVisitor& visitor) {
  gate_up_.visit(visitor);
  down_.visit(visitor);
}

Footprint GeluMlp::plan(Spec x) const {
  const Spec hidden = in_.plan(x).y;
  Footprint footprint = mlp_footprint(in_, out_, x, hidden.shape.dim(-1), keep_all_);
  if (in_.trains_bias()) {
    footprint.owed.insert(footprint.owed.begin() + kBiasSums, ops::column_sums_spec(hidden));
  }
  return footprint;
}

Tensor GeluMlp::bias_sums(const Pass& pass) const {
  return in_.trains_bias() ? pass.owed[kBiasSums] : Tensor();
}

void GeluMlp::forward(Run& run, const Pass& pass) {
  const Tensor hidden = pass.kept[kHidden];
  Run inner = run;
  const Tensor h = take_activation(inner, pass, keep_all_, hidden.dim(-1));
  in_.forward_gelu(inner, kind_, pass.x, hidden, h);
  out_.forward(inner, {.x = h, .y = pass.y, .residual = pass.residual});
}

void GeluMlp::backward_input(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor dh = inner.take_scratch(pass.kept[kHidden].spec());
  out_.backward_input(inner, {.dx = dh, .dy = pass.dy});
  ops::gelu_backward(inner, kind_, pass.kept[kHidden], dh, pass.owed[kDhidden],
                     activation_again(pass, keep_all_), bias_sums(pass));
  in_.backward_input(inner, {.dx = pass.dx, .dy = pass.owed[kDhidden]});
}

void GeluMlp::backward_weight(Run& run, const Pass& pass) {
  in_.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDhidden]}, bias_sums(pass));
  out_.backward_weight(run, {.x = activation(pass, keep_all_), .dy = pass.dy});
}

void GeluMlp::visit(ParamVisitor& visitor) {
  in_.visit(visitor);
  out_.visit(visitor);
}

}  // namespace atl::nn
