#include "atoll/nn/dropout.h"

#include "atoll/ops/elementwise/elementwise.h"

namespace atl::nn {

Footprint Dropout::plan(Spec x) const {
  Footprint footprint;
  footprint.y = x;
  footprint.need_dy = kForInput;  // the mask is drawn again: nothing is kept
  return footprint;
}

void Dropout::forward(Run& run, const Pass& pass) {
  if (run.training) {
    ops::dropout(run, p_, index_, pass.x, pass.y, part_);
  } else {
    ops::copy(run, pass.x, pass.y);
  }
}

void Dropout::backward_input(Run& run, const Pass& pass) {
  ops::dropout(run, p_, index_, pass.dy, pass.dx, part_);
}

}  // namespace atl::nn
