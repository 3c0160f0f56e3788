#include "atoll/nn/scale.h"

#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

Footprint Scale::plan(Spec x) const {
  Footprint footprint;
  footprint.y = x;
  footprint.need_dy = kForInput;
  return footprint;
}

void Scale::forward(Run& run, const Pass& pass) {
  ops::scale(run, factor_, pass.x, pass.y);
}

void Scale::backward_input(Run& run, const Pass& pass) {
  ops::scale(run, factor_, pass.dy, pass.dx);
}

}  // namespace atl::nn
