// The passes of a Linear with DoRA (Liu et al. 2024), as the PEFT library has them: rows j of
// W + s B A are multiplied by g[j], so that they have trained lengths; gradients take the lengths
// that they had for constants. Without dropout
//   y = g (W x + s B A x) + bias,
// and under dropout W itself sees x whole, and what DoRA changes the rest z of it:
//   y = W x + (g - 1) W z + g s B A z + bias.

#include "atoll/nn/linear.h"
#include "atoll/ops/dora/dora.h"
#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

// The matrix of the change is needed for a moment.
Tensor Linear::take_gain(Run& run) const {
  const std::int64_t rows = weight_.spec.shape.dim(0);
  const Tensor gain = run.take_scratch({compute_dtype(weight_.spec.dtype), {2, rows}});
  Run inner = run;
  const Tensor change = inner.take_scratch(weight_.spec);
  bool resets = true;
  for (const LowRankAdapter& adapter : adapters_) {
    adapter.weight(inner, change);
    adapter.gain(inner, weight_.value, change, resets, gain);
    resets = false;
  }
  return gain;
}

void Linear::forward_dora(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor gain = take_gain(inner);
  if (drops(run)) {
    multiply(inner, pass.x, pass.y, bias_.value);
    const Tensor z = adapter_input(inner, pass.x);
    const Tensor changed = inner.take_scratch(pass.y.spec());
    const Tensor plain = inner.take_scratch(pass.y.spec());
    multiply(inner, z, changed);
    ops::scale(inner, -1, changed, plain);
    add_low_rank(inner, z, changed);
    ops::dora_scale(inner, changed, gain, changed);
    ops::add(inner, pass.y, changed, pass.y);
    ops::add(inner, pass.y, plain, pass.y);
  } else {
    multiply(inner, pass.x, pass.y);
    add_low_rank(inner, pass.x, pass.y);
    ops::dora_scale(inner, pass.y, gain, pass.y);
    if (has_bias()) ops::add_bias(inner, pass.y, bias_.value, pass.y);
  }
  if (pass.residual.defined()) ops::add(inner, pass.residual, pass.y, pass.y);
}

void Linear::backward_input_dora(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor gain = take_gain(inner);
  const Tensor scaled = inner.take_scratch(pass.dy.spec());  // g dy
  ops::dora_scale(inner, pass.dy, gain, scaled);
  multiply_back(inner, drops(run) ? pass.dy : scaled, pass.dx);
  const Tensor change = inner.take_scratch(pass.dx.spec());
  if (drops(run)) {  // (g - 1) dy through W, dropped as z was
    Run one = inner;
    const Tensor rest = one.take_scratch(pass.dy.spec());
    ops::scale(one, -1, pass.dy, rest);
    ops::add(one, scaled, rest, rest);
    multiply_back(one, rest, change);
    ops::dropout(one, dropout_, dropout_index_, change, change);
    ops::add(one, pass.dx, change, pass.dx);
  }
  for (const LowRankAdapter& adapter : adapters_) {
    adapter.backward_input(inner, scaled, change);
    if (drops(run)) ops::dropout(inner, dropout_, dropout_index_, change, change);
    ops::add(inner, pass.dx, change, pass.dx);
  }
}

void Linear::backward_weight_dora(Run& run, const Pass& pass) {
  Run inner = run;
  const Tensor gain = take_gain(inner);
  const Tensor z = adapter_input(inner, pass.x);
  const Tensor scaled = inner.take_scratch(pass.dy.spec());
  ops::dora_scale(inner, pass.dy, gain, scaled);
  for (LowRankAdapter& adapter : adapters_) adapter.backward_weight(inner, z, scaled);
  const Tensor changed = scaled;  // (W + s B A) z, in its place
  multiply(inner, z, changed);
  add_low_rank(inner, z, changed);
  for (LowRankAdapter& adapter : adapters_) {
    adapter.backward_gain(inner, pass.dy, changed, gain);
  }
}

}  // namespace atl::nn
