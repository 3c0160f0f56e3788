#include "atoll/nn/mlp.h"

#include <algorithm>

namespace atl::nn {

namespace {

enum Kept { kHidden };               // what the first product gave
enum Owed { kDhidden, kActivated };  // its gradient, and the activation made again in B

// The activation itself is not kept from forward: B needs the same exponentials for the gradient
// and makes it again at no cost.
Footprint mlp_footprint(const Linear& first, const Linear& second, const Spec& x,
                        std::int64_t width) {
  const Footprint in = first.plan(x);
  const Spec activated = x.with_last(width);
  const Footprint out = second.plan(activated);
  Footprint footprint;
  footprint.y = out.y;
  footprint.adds_residual = out.adds_residual;
  footprint.need_x = kForWeight;
  footprint.need_dy = kForInput | kForWeight;
  footprint.kept = {in.y};
  footprint.owed = {in.y, activated};
  footprint.scratch_bytes =
      align_up(activated.bytes()) + std::max(in.scratch_bytes, out.scratch_bytes);
  return footprint;
}

}  // namespace

Footprint SwigluMlp::plan(Spec x) const {
  return mlp_footprint(gate_up_, down_, x, gate_up_.plan(x).y.shape.dim(-1) / 2);
}

void SwigluMlp::forward(Run& run, const Pass& pass) {
  const Tensor gate_up = pass.kept[kHidden];
  Run inner = run;
  const Tensor h = inner.take_scratch(gate_up.spec().with_last(gate_up.dim(-1) / 2));
  gate_up_.forward(inner, {.x = pass.x, .y = gate_up});
  ops::swiglu_forward(inner, gate_up, h);
  down_.forward(inner, {.x = h, .y = pass.y, .residual = pass.residual});
}

void SwigluMlp::backward_input(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor dh = inner.take_scratch(pass.owed[kActivated].spec());
  down_.backward_input(inner, {.dx = dh, .dy = pass.dy});
  ops::swiglu_backward(inner, pass.kept[kHidden], dh, pass.owed[kDhidden], pass.owed[kActivated]);
  gate_up_.backward_input(inner, {.dx = pass.dx, .dy = pass.owed[kDhidden]});
}

void SwigluMlp::backward_weight(Run& run, const Pass& pass) {
  gate_up_.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDhidden]});
  down_.backward_weight(run, {.x = pass.owed[kActivated], .dy = pass.dy});
}

void SwigluMlp::visit(ParamVisitor& visitor) {
  gate_up_.visit(visitor);
  down_.visit(visitor);
}

Footprint GeluMlp::plan(Spec x) const {
  return mlp_footprint(in_, out_, x, in_.plan(x).y.shape.dim(-1));
}

void GeluMlp::forward(Run& run, const Pass& pass) {
  const Tensor hidden = pass.kept[kHidden];
  Run inner = run;
  const Tensor h = inner.take_scratch(hidden.spec());
  in_.forward(inner, {.x = pass.x, .y = hidden});
  ops::gelu_forward(inner, kind_, hidden, h);
  out_.forward(inner, {.x = h, .y = pass.y, .residual = pass.residual});
}

void GeluMlp::backward_input(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor dh = inner.take_scratch(pass.owed[kActivated].spec());
  out_.backward_input(inner, {.dx = dh, .dy = pass.dy});
  ops::gelu_backward(inner, kind_, pass.kept[kHidden], dh, pass.owed[kDhidden],
                     pass.owed[kActivated]);
  in_.backward_input(inner, {.dx = pass.dx, .dy = pass.owed[kDhidden]});
}

void GeluMlp::backward_weight(Run& run, const Pass& pass) {
  in_.backward_weight(run, {.x = pass.x, .dy = pass.owed[kDhidden]});
  out_.backward_weight(run, {.x = pass.owed[kActivated], .dy = pass.dy});
}

void GeluMlp::visit(ParamVisitor& visitor) {
  in_.visit(visitor);
  out_.visit(visitor);
}

}  // namespace atl::nn
